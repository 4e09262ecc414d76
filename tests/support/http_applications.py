"""HTTP applications: the server of `http_servers/`, and the configurations that run it."""

from __future__ import annotations

from pathlib import Path

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
