"""php.ini: which file is loaded, which values override it, and which code may change them."""

import pytest

VALUES = """
    $names = ['memory_limit', 'precision', 'display_errors', 'user_agent', 'error_prepend_string'];
    echo json_encode(array_combine($names, array_map('ini_get', $names)));"""


def application(folder, **more) -> dict:
    return {"applications": {"app": {"type": "php", "root": str(folder.root), "index": "index.php", **more}}}


def test_values_of_the_command_line_apply(folder, serve):
    folder.php("index.php", VALUES)
    got = serve(ini={"memory_limit": "77M", "user_agent": "a value; with = signs"}).get("/").json()
    assert got["memory_limit"] == "77M" and got["user_agent"] == "a value; with = signs"


@pytest.mark.parametrize("option", ["on", "On", "yes", "true", "1"])
def test_booleans_of_the_command_line_apply(folder, serve, option):
    folder.php("index.php", "echo json_encode((bool) ini_get('display_errors'));")
    assert serve(ini={"display_errors": option}).get("/").text == "true"


def test_a_php_ini_of_the_command_line_applies(folder, serve):
    ini = folder.write("../own.ini", "memory_limit = 99M\nuser_agent = own\n[ignored]\nprecision = 5\n")
    folder.php(
        "index.php", "echo json_encode([php_ini_loaded_file(), ini_get('memory_limit'), ini_get('user_agent'), 1/3]);"
    )
    server = serve("--php-ini", str(ini), ini={"user_agent": "command line"})
    file, memory, agent, third = server.get("/").json()
    assert file == str(ini) or file.endswith("/own.ini")
    assert (memory, agent) == ("99M", "command line")


def test_extensions_of_the_distribution_are_loaded(folder, serve):
    folder.php(
        "index.php",
        "echo json_encode(array_map('extension_loaded', ['mbstring', 'intl', 'pdo_mysql', 'redis', 'curl']));",
    )
    assert serve().get("/").json() == [True] * 5


def test_extensions_are_loaded_with_a_custom_php_ini(folder, serve):
    ini = folder.write("../own.ini", "memory_limit = 99M\n")
    folder.php("index.php", "echo json_encode([extension_loaded('mbstring'), extension_loaded('Zend OPcache')]);")
    assert serve("--php-ini", str(ini)).get("/").json() == [True, True]


def test_options_of_a_configuration_apply(folder, run):
    ini = folder.write("../own.ini", "memory_limit = 99M\nprecision = 5\nuser_agent = file\n")
    folder.php("index.php", VALUES)
    options = {
        "file": str(ini),
        "admin": {"memory_limit": "111M"},
        "user": {"user_agent": "user", "display_errors": "0"},
    }
    got = run(application(folder, options=options)).get("/").json()
    assert (got["memory_limit"], got["precision"], got["user_agent"]) == ("111M", "5", "user")
    assert not got["display_errors"] or got["display_errors"] == "0"


def test_admin_values_cannot_be_changed(folder, run):
    folder.php(
        "index.php",
        """echo json_encode([@ini_set('memory_limit', '200M'), ini_get('memory_limit'),
            @ini_set('user_agent', 'changed') !== false, ini_get('user_agent'),
            @ini_set('error_prepend_string', 'x'), ini_get('error_prepend_string')]);""",
    )
    options = {"admin": {"memory_limit": "111M", "error_prepend_string": "admin"}, "user": {"user_agent": "user"}}
    server = run(application(folder, options=options, processes=1))
    for _ in range(3):
        assert server.get("/").json() == [False, "111M", True, "changed", False, "admin"]


def test_admin_values_survive_ini_restore_and_user_ini(folder, run):
    folder.write(".user.ini", "memory_limit = 55M\nprecision = 7\nuser_agent = by-user-ini\n")
    folder.php(
        "index.php",
        "ini_restore('memory_limit'); echo json_encode([ini_get('memory_limit'), ini_get('precision'), ini_get('user_agent')]);",
    )
    options = {"admin": {"memory_limit": "111M"}, "user": {"user_agent": "by-configuration"}}
    server = run(application(folder, options=options))
    assert server.get("/").json()[:2] == ["111M", "7"]


def test_admin_options_can_disable_functions(folder, run):
    folder.php(
        "index.php",
        "echo json_encode([function_exists('shell_exec'), function_exists('passthru'), function_exists('strlen')]);",
    )
    options = {"admin": {"disable_functions": "shell_exec,passthru"}}
    assert run(application(folder, options=options)).get("/").json() == [False, False, True]


def test_admin_options_can_set_open_basedir(folder, run):
    folder.write("../outside.txt", "outside")
    folder.php(
        "index.php",
        "echo json_encode([@file_get_contents(__DIR__ . '/../outside.txt'), strlen(file_get_contents(__FILE__)) > 0]);",
    )
    options = {"admin": {"open_basedir": str(folder.root)}}
    assert run(application(folder, options=options)).get("/").json() == [False, True]


def test_a_user_ini_applies_to_its_folder_and_below(folder, serve):
    folder.write(".user.ini", "user_agent = top\nprecision = 6\n")
    folder.write("sub/.user.ini", "user_agent = sub\n")
    folder.write("sub/deeper/keep.txt")
    for name in ("index.php", "sub/index.php", "sub/deeper/index.php"):
        folder.php(name, "echo json_encode([ini_get('user_agent'), ini_get('precision')]);")
    server = serve(processes=1)
    for _ in range(3):
        assert server.get("/").json() == ["top", "6"]
        assert server.get("/sub/").json() == ["sub", "6"]
        assert server.get("/sub/deeper/").json() == ["sub", "6"]


def test_a_user_ini_does_not_apply_to_other_folders(folder, serve):
    folder.write("with/.user.ini", "user_agent = with\n")
    for name in ("with/index.php", "without/index.php"):
        folder.php(name, "echo ini_get('user_agent');")
    server = serve(processes=1)
    for _ in range(3):
        assert server.get("/with/").text == "with"
        assert server.get("/without/").text == ""


def test_a_user_ini_that_changes_is_read_again(folder, serve):
    folder.write(".user.ini", "user_agent = before\n")
    folder.php("index.php", "echo ini_get('user_agent');")
    server = serve(processes=1, ini={"user_ini.cache_ttl": "0"})
    assert server.get("/").text == "before"
    folder.write(".user.ini", "user_agent = after\n")
    assert server.get("/").text == "after"


def test_a_user_ini_can_limit_the_body_since_8_5(folder, serve):
    """As under FPM: older versions read $_POST before they look for .user.ini (php-src issue 8157)."""
    folder.write(".user.ini", "post_max_size = 10\n")
    folder.php("index.php", "echo json_encode([PHP_VERSION_ID >= 80500, ini_get('post_max_size'), count($_POST)]);")
    server = serve(processes=1, ini={"display_errors": "0"})
    form = [("Content-Type", "application/x-www-form-urlencoded")]
    limits, limit, fields = server.post("/", "field=" + "x" * 100, form).json()
    assert (limit, fields) == ("10", 0 if limits else 1)


def test_auto_prepend_and_append_files_run(folder, serve):
    folder.php("before.inc.php", "echo 'before ';")
    folder.php("after.inc.php", "echo ' after';")
    folder.php("index.php", "echo 'body';")
    server = serve(
        ini={"auto_prepend_file": f"{folder.root}/before.inc.php", "auto_append_file": f"{folder.root}/after.inc.php"}
    )
    assert server.get("/").text == "before body after"


def test_the_sapi_name_is_that_of_fpm_and_phpinfo_works(site):
    assert site.get("echo php_sapi_name(), PHP_SAPI;").text == "fpm-fcgifpm-fcgi"
    page = site.get("phpinfo();")
    assert page.header("Content-Type").startswith("text/html")
    assert "howdah" in page.text and "<html" in page.text
    assert "Zend Engine" in page.text.replace("&nbsp;", " "), "PHP 8.4 breaks the line at another place than 8.2"
    assert "4.2" in page.text or "PHP Version" in page.text
    credits = site.get("phpcredits();")
    assert credits.status == 200


TRAPS = {
    "quote before a newline": 'a"\nprecision=3\n;',
    "apostrophes": "it's 'so'",
    "backslashes": "\\a\\\\",
    "a variable": "${HOME} $x",
    "comment and section": "; # [x] = (y)",
    "words with an operator": "Mine | Yours & ~Theirs",
    "spaces": "  on ",
}


def test_an_unusual_value_does_not_affect_the_values_after_it(folder, run):
    folder.php(
        "index.php",
        "echo json_encode([ini_get('error_prepend_string'), ini_get('precision'), function_exists('shell_exec')]);",
    )
    admin = {"disable_functions": "shell_exec", "precision": "9"}
    server = run(application(folder, options={"admin": admin}, processes=1))
    for case, value in TRAPS.items():
        answer = server.api("PUT", "/config/applications/app/options/admin", {"error_prepend_string": value, **admin})
        assert answer.status == 200, (case, answer)
        assert server.get("/").json() == [value, "9", False], case


@pytest.mark.parametrize("name", ["a=b", "[x", "a(b", "disable_functions;", "#c", "off"])
def test_an_invalid_setting_name_is_rejected(folder, run, name):
    folder.php("index.php", "echo json_encode(function_exists('shell_exec'));")
    server = run(application(folder))
    options = {"admin": {name: "x", "disable_functions": "shell_exec"}}
    answer = server.api("PUT", "/config/applications/app/options", options)
    assert answer.status == 400 and "is not the name of a setting of PHP" in answer.json()["detail"]
    assert server.get("/").text == "true"


def test_settings_that_php_rejects_are_an_error_of_the_api(folder, run):
    folder.php("index.php", "echo json_encode(function_exists('shell_exec'));")
    server = run(application(folder))
    options = {"admin": {"a": "1 |", "disable_functions": "shell_exec"}}
    answer = server.api("PUT", "/config/applications/app/options", options)
    assert answer.status == 500
    assert "applications/app/options: PHP cannot read all of" in answer.json()["detail"]
    assert "syntax error" in answer.json()["detail"], "the message of PHP is included"
    assert server.get("/").text == "true"
