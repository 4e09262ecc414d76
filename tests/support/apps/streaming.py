"""A page `/stream?after=FILE` that sends `first`, and `second` once the file exists."""

from pathlib import Path

from support.server import Howdah


def check_that_it_arrives_as_it_is_made(server: Howdah, signal_file: Path) -> None:
    """Fails if the first line waits for the second."""
    with server.connect() as connection:
        connection.send_request("GET", f"/stream?after={signal_file}")
        response, body = connection.stream()
        assert response.status == 200 and next(body) == b"first\n"
        signal_file.touch()
        assert b"".join(body) == b"second\n"
