"""Fixtures of the tests of processes."""

import pytest

from support.deadly_scripts import DEATHS
from support.folders import Folder
from support.http.held_request import held_page


@pytest.fixture
def scripts(folder) -> Folder:
    folder.php("pid.php", "echo getmypid();")
    folder.php("die.php", "posix_kill(getmypid(), 9);")
    held_page(folder)
    folder.write("hello.txt", "hello")
    return folder


@pytest.fixture
def shop(folder, run):
    """Starts the application `shop` with these options; `config` adds to the configuration."""
    for name, code in DEATHS.items():
        folder.php(f"{name}.php", code)
    folder.php("pid.php", "echo getmypid();")
    folder.php("slow.php", "touch(SCRATCH . '/slow'); await(SCRATCH . '/go'); echo getmypid();")
    folder.write("file.txt", "a file")

    def start(*words, config={}, how={}, **options):
        application = {
            "type": "php",
            "root": str(folder.root),
            "processes": 2,
            "options": {"admin": {"ffi.enable": "1"}},
            **options,
        }
        routes = [
            {"match": {"uri": "*.txt"}, "action": {"share": f"{folder.root}$uri"}},
            {"action": {"pass": "applications/shop"}},
        ]
        return run({"applications": {"shop": application}, "routes": routes, **config}, *words, **how)

    return start
