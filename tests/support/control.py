"""A howdah with an empty configuration, and pieces of configurations."""

from support.server import Howdah

INITIAL = {"listeners": {}, "routes": [], "applications": {}}


def returning(status: int) -> dict:
    return {"action": {"return": status}}


def start_empty(*options: str) -> Howdah:
    return Howdah(lambda _: ["run", *options], ready=lambda server: "howdah" in server.stdout)
