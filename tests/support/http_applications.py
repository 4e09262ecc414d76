"""HTTP applications: the server of `http_servers/`, and the configurations that run it."""

from __future__ import annotations

from pathlib import Path

from support.http.load import Load
from support.server import Howdah
from support.waiting import wait_for

SERVER = Path(__file__).parent / "http_servers" / "server.php"


def http_application(folder, environment: dict[str, str] | None = None, **options) -> dict:
    """The application with the server, copied into the folder, where its user can read it."""
    script = folder.write("server.php", SERVER.read_text())
    return {
        "type": "http",
        "command": f"php {script}",
        "working_directory": str(folder.root),
        "environment": {"VERSION": "1", **(environment or {})},
        **options,
    }


def configuration(application: dict) -> dict:
    return {"applications": {"app": application}}


def pids(server: Howdah) -> list[int]:
    """The processes that get requests."""
    status = server.api("GET", "/status/applications/app/processes").json()
    return sorted(process["pid"] for process in status["workers"] if process["state"] == "ready")


def is_gone(pid: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until_gone(*gone: int) -> None:
    wait_for(lambda: all(map(is_gone, gone)), f"the end of {gone}")


def change(server: Howdah, environment: dict[str, str]):
    """Changes the environment of the application, which needs new processes. Returns the API's answer."""
    return server.api("PUT", "/config/applications/app/environment", environment)


def assert_changes_lose_no_request(server: Howdah, slow: str) -> None:
    """Changes and restarts the application under load. `slow` is a target that takes a moment."""

    def check(client, turn):
        response = client.get("/") if turn % 3 else client.get(slow)
        return response.status != 200 and response.status

    with Load(server, check, clients=4) as load:
        for version in ["2", "3"]:
            before = pids(server)
            assert change(server, {"VERSION": version}).status == 200
            assert server.get("/").json()["version"] == version
            wait_until_gone(*before)
            assert server.api("GET", "/control/applications/app/restart").status == 200
        wait_for(lambda: load.correct > 100, "requests")
    load.assert_flawless()
