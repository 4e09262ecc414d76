"""Releases of an application behind a symbolic link, as deploy tools lay them out."""

import os

from support.waiting import wait_for


class Releases:
    """A folder of releases; the link `current` leads to one of them."""

    def __init__(self, folder):
        self.folder = folder
        self.base = folder.root
        self.current = self.base / "current"
        self.root = self.current / "public"

    def release(self, name, index=None, **files):
        """A release with its name in all its parts."""
        place = f"releases/{name}"
        index = index or (
            "<?php $part = require __DIR__ . '/../src/part.php'; "
            f"echo json_encode(['index' => '{name}', 'part' => $part, 'root' => $_SERVER['DOCUMENT_ROOT'], "
            "'marker' => file_get_contents($_SERVER['DOCUMENT_ROOT'] . '/version.txt'), "
            "'script' => $_SERVER['SCRIPT_FILENAME'], 'file' => __FILE__, 'cwd' => getcwd(), "
            "'late' => (function () { usleep(2000); return require $_SERVER['DOCUMENT_ROOT'] . '/../src/late.php'; })()]);"
        )
        self.folder.write(f"{place}/public/index.php", index)
        self.folder.write(f"{place}/public/version.txt", name)
        self.folder.write(f"{place}/src/part.php", f"<?php return '{name}';")
        self.folder.write(f"{place}/src/late.php", f"<?php return '{name}';")
        for path, content in files.items():
            self.folder.write(f"{place}/public/{path}.php", content)
        return self.base / place

    def swap(self, name):
        """Replaces the link in one step, as deploy tools do."""
        new = self.base / "current.new"
        new.symlink_to(f"releases/{name}")
        os.rename(new, self.current)

    def config(self, **application):
        return {
            "routes": [
                {"match": {"uri": "*.php"}, "action": {"pass": "applications/app"}},
                {"action": {"share": f"{self.root}$uri", "fallback": {"pass": "applications/app"}}},
            ],
            "applications": {
                "app": {
                    "type": "php",
                    "root": str(self.root),
                    "front_controller": "index.php",
                    "processes": 2,
                    **application,
                }
            },
        }


def pids(server, count: int = 2) -> list[int]:
    return [worker.pid for worker in server.workers(count=count)]


def version(server) -> str:
    """The release that the files are of."""
    return server.get("/version.txt").text


def wait_for_version(server, name: str) -> None:
    wait_for(lambda: version(server) == name, f"release {name}")


def front_controller_application(folder, **options) -> dict:
    """An application with one worker, whose index.php gets every request."""
    return {"type": "php", "root": str(folder.root), "front_controller": "index.php", "processes": 1, **options}
