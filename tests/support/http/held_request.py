"""A request that stays in PHP until its test releases it."""

from support.folders import Folder
from support.http.client import Connection, Response
from support.server import Howdah
from support.waiting import wait_for


def held_page(folder: Folder) -> None:
    """Makes the page that held requests ask for."""
    folder.php(
        "held.php",
        "set_time_limit(0); touch(SCRATCH . '/' . $_GET['name'] . '-started');"
        "await(SCRATCH . '/' . $_GET['name'] . '-released'); echo 'released';",
    )


class HeldRequest:
    """Sends the request, on a connection of its own or on the given one, and waits until PHP runs it."""

    def __init__(self, server: Howdah, folder: Folder, name: str, connection: Connection | None = None):
        self.name, self.folder = name, folder
        self.connection = connection or server.connect()
        self.connection.send_request("GET", f"/held.php?name={name}")
        wait_for((folder.scratch / f"{name}-started").exists, f"{name} to run")

    def release(self) -> None:
        (self.folder.scratch / f"{self.name}-released").touch()

    def response(self) -> Response:
        """Releases the request and reads its response."""
        self.release()
        return self.connection.response()
