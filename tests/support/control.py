"""A howdah with an empty configuration, and pieces of configurations."""

from support.server import Howdah

INITIAL = {"listeners": {}, "routes": [], "applications": {}}


def returning(status: int) -> dict:
    return {"action": {"return": status}}


def serving(server: Howdah) -> bool:
    return server.stdout.startswith("howdah")


def start_empty(*options: str) -> Howdah:
    return Howdah(lambda _: ["run", *options], ready=serving)


def start_in(folder, *options: str) -> Howdah:
    """A howdah whose state is in the folder."""
    control = folder / "c"
    words = ["run", "--state-dir", str(folder / "state"), "--control", f"unix:{control}", *options]
    server = Howdah(lambda _: words, ready=serving)
    server.control = control
    return server
