"""The environment of the program that started howdah may hold secrets: PHP sees none of it."""

import os

import pytest

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
