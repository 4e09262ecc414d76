"""The environment of the program that started howdah may hold secrets: PHP sees none of it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.folders import readable

SECRET = "secret-of-the-shell"
EVERYTHING = """
    $ini = function_exists('shell_exec') ? (string) shell_exec('env') : '';
    echo json_encode([$_SERVER, getenv(), $_ENV, $ini, (string) @file_get_contents('/proc/self/environ'),
        (string) @file_get_contents('/proc/' . posix_getppid() . '/environ')]);"""


@pytest.fixture
def environ():
    return {"DATABASE_PASSWORD": SECRET, "HOME": "/home/" + SECRET, "NOTIFY_SOCKET": "@" + SECRET}


def test_php_sees_no_variable_of_the_shell(folder, serve, environ):
    folder.php("all.php", EVERYTHING)
    server = serve(env={"APP_ENV": "prod"}, environ=environ)
    response = server.get("/all.php")
    assert response.status == 200 and SECRET not in response.text
    variables = response.json()[1]
    assert (variables["APP_ENV"], variables["PATH"]) == ("prod", os.environ["PATH"])


def test_an_option_passes_all_on(folder, serve, run, environ):
    folder.php("all.php", EVERYTHING)
    assert serve("--inherit-env", environ=environ).get("/all.php").json()[1]["DATABASE_PASSWORD"] == SECRET
    app = {"type": "php", "root": str(folder.root), "inherit_environment": True, "environment": {"HOME": "/configured"}}
    variables = run({"applications": {"app": app}}, environ=environ).get("/all.php").json()[1]
    assert (variables["DATABASE_PASSWORD"], variables["HOME"]) == (SECRET, "/configured")


def test_a_custom_libphp_is_found_through_the_variable_of_the_dynamic_loader(folder, serve, environ, tmp_path):
    folder.php("loader.php", "echo json_encode([getenv('LD_LIBRARY_PATH'), $_SERVER['LD_LIBRARY_PATH'] ?? null]);")
    executable = os.readlink(f"/proc/{serve(processes=1).prototype().pid}/exe")
    libraries = subprocess.run(["ldd", executable], capture_output=True, text=True, check=True).stdout
    name, installed = re.search(r"(libphp\S*) => (/\S+)", libraries).groups()
    custom = readable(tmp_path) / "libraries"
    custom.mkdir()
    shutil.copy(installed, custom / name)
    environ["LD_LIBRARY_PATH"] = str(custom)
    server = serve(environ=environ, processes=1)
    assert f"{custom}/{name}" in Path(f"/proc/{server.prototype().pid}/maps").read_text()
    assert server.get("/loader.php").json() == [False, None]
    configured = serve(environ=environ, env={"LD_LIBRARY_PATH": str(custom)}, processes=1)
    assert configured.get("/loader.php").json() == [str(custom)] * 2
