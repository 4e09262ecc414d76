"""The commands that send requests to a running howdah, and those that help to write a configuration."""

import http.server
import json
import os
import pty
import re
import subprocess
import threading
from pathlib import Path

import pytest

from support.command_line import howdah
from support.control import INITIAL, returning, start_empty
from support.machine import free_port, needs_root
from support.server import EXECUTABLE, Howdah, stop_all
from support.waiting import wait_for

DONE = "Reconfiguration done.\n"
NO_VALUE = "expected a value: an object, an array, a text in quotes, a number, true, false or null"


@pytest.fixture(scope="module")
def empty_server():
    server = start_empty()
    yield server
    stop_all([server])


@pytest.fixture
def server(empty_server) -> Howdah:
    """A howdah with the initial configuration."""
    assert empty_server.api("PUT", "/config", INITIAL).status == 200
    return empty_server


@pytest.fixture
def ask(server):
    """Runs a command of the API client; returns its standard output."""

    def ask(*arguments, **how) -> str:
        result = howdah(*arguments, "--control", f"unix:{server.control}", **how)
        assert (result.returncode, result.stderr) == (0, ""), result
        return result.stdout

    return ask


@pytest.fixture
def fail(server):
    """Runs a command of the API client that fails; returns its error output."""

    def fail(*arguments, **how) -> str:
        result = howdah(*arguments, "--control", f"unix:{server.control}", **how)
        assert (result.returncode, result.stdout) == (1, ""), result
        assert result.stderr.startswith("howdah: ") and "os error" not in result.stderr
        return result.stderr.removeprefix("howdah: ")

    return fail


# --- config


def test_the_configuration_is_read_and_changed(ask, server, tmp_path):
    assert json.loads(ask("config", "get")) == INITIAL
    assert "\r" not in ask("config", "get")
    file = tmp_path / "routes.json"
    file.write_text('// two routes\n[{"action": {"return": 200}}, {"action": {"return": 201}}]')
    assert ask("config", "put", "routes", file) == DONE
    assert ask("config", "get", "routes/1/action/return") == "201\n"
    assert ask("config", "post", "routes", "-", stdin='{"action": {"return": 202}}') == DONE
    assert ask("config", "delete", "routes/0") == DONE
    assert json.loads(ask("config", "get", "/routes/")) == [returning(201), returning(202)]
    file.write_text("{}")
    assert ask("config", "put", file) == DONE
    assert ask("config", "get") == "{}\n"
    assert ask("config", "put", "-", stdin=json.dumps(INITIAL)) == DONE
    assert ask("config", "delete", "/") == DONE
    assert server.api("GET", "/config").json() == {}


def test_an_empty_variable_deletes_nothing(ask, fail):
    assert fail("config", "delete", "") == "the path is empty; write / to delete the whole configuration\n"
    assert "write \"listeners\" to delete all of it" in fail("config", "delete", "listeners/")
    assert json.loads(ask("config", "get")) == INITIAL


def test_an_output_that_is_not_whole_is_a_failure(server):
    command = [EXECUTABLE, "config", "get", "--control", f"unix:{server.control}"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("howdah: standard output cannot be written: ") and "os error" not in result.stderr


@pytest.mark.parametrize("name", ["plain", "my app", "100%25", "caf\u00e9?#[1]", "a%2Fb", '"quoted"', "..", "+&="])
def test_any_name_is_a_path(ask, server, name):
    """As a user types it: only the slash and the percent sign must be escaped."""
    real = name.replace("%2F", "/").replace("%25", "%")
    assert ask("config", "put", "routes", "-", stdin="{}") == DONE
    assert ask("config", "put", f"routes/{name}", "-", stdin="[]") == DONE
    assert server.api("GET", "/config/routes").json() == {real: []}
    assert json.loads(ask("config", "get", f"routes/{name}")) == []
    assert ask("config", "delete", f"routes/{name}") == DONE


def test_listeners_are_paths(ask, socket_path):
    listener = f"listeners/unix:{str(socket_path).replace('/', '%2F')}"
    assert ask("config", "put", listener, "-", stdin='{"pass": "routes"}') == DONE
    assert ask("config", "get", f"{listener}/pass") == '"routes"\n'


def test_an_etag_protects_the_changes_of_others(ask, fail):
    etag = ask("config", "get", "--etag").strip()
    assert re.fullmatch(r'"\w+"', etag)
    assert ask("config", "post", "routes", "-", "--if-match", etag, stdin=json.dumps(returning(200))) == DONE
    for command in (["put", "routes", "-"], ["post", "routes", "-"], ["delete", "routes/0"]):
        assert fail("config", *command, "--if-match", etag, stdin="[]").startswith("Precondition Failed. ")
    assert ask("config", "delete", "routes/0", "--if-match", ask("config", "get", "--etag").strip().strip('"')) == DONE


def test_a_json_error_is_shown_with_its_location(fail, tmp_path):
    file = tmp_path / "shop.json"
    file.write_text('{"listeners": {},\n\t"routes": [},\n "applications": {}}')
    for arguments in (["put", file], ["check", file], ["put", "settings", file], ["post", "routes", file]):
        first, line, caret = fail("config", *arguments).splitlines()
        assert first == f"Invalid JSON. {file}:2:13: {NO_VALUE}"
        assert line == '  2 | \t"routes": [},' and caret == "    | \t           ^"


def test_a_wrong_option_is_shown_with_its_location(fail, tmp_path):
    file = tmp_path / "shop.json"
    file.write_text('{\n  "listeners": {\n    "*:80": { "pass": "routs" } // typo\n  }\n}')
    first, line, caret = fail("config", "put", file).splitlines()
    assert first.startswith(f'Invalid configuration. {file}:3:15: listeners/*:80/pass: "routs" leads nowhere')
    assert line == '  3 |     "*:80": { "pass": "routs" } // typo' and caret == "    |               ^"
    part = '{ "pass": "routs" }'
    first, line, caret = fail("config", "put", "listeners/*:80", "-", stdin=part).splitlines()
    assert first.startswith("Invalid configuration. standard input:1:3: listeners/*:80/pass: ")
    assert line == "  1 | " + part and caret == "    |   ^"


def test_a_configuration_that_cannot_run_here_is_an_error(fail):
    shop = '{"applications": {"shop": {"type": "php",\n "root": "/no/such/root"}}}'
    message = fail("config", "put", "-", stdin=shop)
    assert message.startswith("Failed to apply new configuration. standard input:2:2: ")
    assert 'applications/shop/root: "/no/such/root" does not exist' in message


@pytest.mark.parametrize(
    "arguments, error",
    [
        (["get", "routs"], "Value doesn't exist. the configuration has no member \"routs\"; did you mean \"routes\"?"),
        (["get", "routes/7"], "Value doesn't exist. "),
        (["delete", "listeners/*:80"], "Value doesn't exist. "),
        (["post", "listeners", "-"], "Method isn't allowed. POST adds to an array"),
        (["get", "100%"], 'the path "100%" is not valid: '),
        (["put", "routes", "/no/such/file"], "the file /no/such/file does not exist; "),
        (["put", "/tmp"], "cannot read /tmp: Is a directory"),
        (["put", "listeners/*:80"], "the file listeners/*:80 does not exist; "),
    ],
)
def test_an_impossible_request_is_a_one_line_error(fail, arguments, error):
    (line,) = fail("config", *arguments, stdin="{}").splitlines()
    assert line.startswith(error)


def test_a_file_that_is_too_large_is_rejected(fail, tmp_path):
    file = tmp_path / "large.json"
    file.write_bytes(b" " * (5 << 20))
    assert "at most 4194304" in fail("config", "put", file)
    file.write_bytes(b" " * (20 << 20))
    assert fail("config", "put", file).startswith("Payload Too Large. ")


@pytest.mark.parametrize("arguments", [["put"], ["post", "routes"], ["delete"], ["nonsense"], [], ["check"], ["get", "a", "b"]])
def test_a_wrong_command_line_is_rejected(arguments):
    result = howdah("config", *arguments)
    assert result.returncode == 2 and "Usage" in result.stderr and result.stdout == ""


# --- config check and config schema need no server


def test_a_file_is_checked_without_a_server(tmp_path):
    file = tmp_path / "shop.json"
    file.write_text('{"applications": {"shop": {"type": "php", "root": "/not/on/this/machine"}}}')
    result = howdah("config", "check", file)
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{file}: the configuration is valid\n", "")
    file.write_text('{"upstreams": {"none": {"servers": {"127.0.0.1:1": {"weight": 0}}}}}')
    result = howdah("config", "check", file)
    assert result.returncode == 0 and "howdah: warning: " in result.stderr and "weight" in result.stderr
    result = howdah("config", "check", "-", stdin=b"{\n  \xff}")
    assert result.returncode == 1 and "standard input:2:3: the text has a byte that is not UTF-8" in result.stderr


def test_the_schema_is_json():
    result = howdah("config", "schema")
    assert result.returncode == 0 and json.loads(result.stdout)["$schema"].startswith("https://json-schema.org/")


# --- config edit


@pytest.fixture
def editor(tmp_path):
    """An editor that runs the next of these shell scripts each time, with the file in $1."""

    def editor(*scripts: str) -> dict:
        count = tmp_path / "count"
        count.write_text("0")
        for number, script in enumerate(scripts):
            (tmp_path / f"editor{number}").write_text(script)
        program = tmp_path / "editor"
        program.write_text(
            f'#!/bin/sh\nset -eu\n[ "$1" = --wait ]; shift\nn=$(cat {count}); echo $((n + 1)) > {count}\n'
            f'cp "$1" {tmp_path}/seen$n\n. {tmp_path}/editor$n\n'
        )
        program.chmod(0o755)
        return {"VISUAL": f"{program} --wait", "TMPDIR": str(tmp_path), "EDITOR": "false"}

    return editor


def kept(message: str) -> Path:
    """The file that has the edited text."""
    match = re.search(r"^Your text is in (\S+); to send it: howdah config put.* \1$", message, re.M)
    assert match, message
    return Path(match[1])


def test_an_edit_is_applied(ask, server, editor, tmp_path):
    env = editor('sed -i "s/\\[\\]/[{\\"action\\": {\\"return\\": 204}}]/" "$1"')
    assert ask("config", "edit", env=env) == DONE
    assert server.api("GET", "/config/routes").json() == [returning(204)]
    assert json.loads((tmp_path / "seen0").read_text()) == INITIAL
    assert not list(tmp_path.glob("howdah-*")), "the file is gone"


def test_an_edit_may_have_bytes_that_are_not_utf8_in_comments(ask, server, editor, tmp_path):
    env = editor(
        r"""printf '// \374\n{"rutes": []}' > "$1" """,
        r"""sed -i "s/rutes/routes/" "$1" """,
    )
    assert ask("config", "edit", env=env) == DONE
    assert server.api("GET", "/config").json() == {"routes": []}
    assert b"// \xfc\n" in (tmp_path / "seen1").read_bytes()


def test_a_part_is_edited(ask, server, editor, tmp_path):
    server.api("POST", "/config/routes", returning(200))
    assert ask("config", "edit", "routes/0", env=editor('sed -i s/200/201/ "$1"')) == DONE
    assert server.api("GET", "/config/routes").json() == [returning(201)]
    assert json.loads((tmp_path / "seen0").read_text()) == returning(200)


@pytest.mark.parametrize("script", ["true", ': > "$1"', 'echo >> "$1"; sed -i \'$d\' "$1"'])
def test_an_edit_without_a_change_changes_nothing(ask, server, editor, script):
    etag = server.api("GET", "/config").header("ETag")
    assert ask("config", "edit", env=editor(script)) == "Nothing was changed.\n"
    assert server.api("GET", "/config").header("ETag") == etag


def test_a_rejected_edit_is_opened_again_with_the_reason(ask, server, editor, tmp_path):
    env = editor('echo "{\\n\\"routes\\": [}" > "$1"', 'sed -i "s/\\[}/[], \\"rutes\\": 1}/" "$1"', 'sed -i "s/, .*/}/" "$1"')
    assert ask("config", "edit", env=env) == DONE
    assert server.api("GET", "/config").json() == {"routes": []}
    marked, own = [], []
    for line in (tmp_path / "seen1").read_text().splitlines():
        (marked if line.startswith("//! ") else own).append(line)
    assert own == ["{", '"routes": [}']
    assert marked[0] == f"//! Invalid JSON. line 6, column 12: {NO_VALUE}", "the line is that of the file"
    assert marked[1] == '//!   6 | "routes": [}' and "give up" in marked[-1]
    second = (tmp_path / "seen2").read_text()
    assert NO_VALUE not in second and second.count("//! ") == 4
    assert 'rutes: there is no such option; did you mean "routes"?' in second


def test_an_abandoned_edit_is_kept(fail, server, editor):
    message = fail("config", "edit", "routes", env=editor('echo nonsense > "$1"', "true"))
    assert "Nothing was changed." in message
    file = kept(message)
    assert file.read_text() == "nonsense\n" and file.stat().st_mode & 0o777 == 0o600
    assert f"config put routes {file}" in message or f"config put 'routes' {file}" in message
    assert server.api("GET", "/config").json() == INITIAL


def test_an_abandoned_edit_keeps_the_reason_of_the_refusal(fail, editor):
    text = '{"routes": [], "rutes": 1}'
    message = fail("config", "edit", env=editor(f"echo '{text}' > \"$1\"", "true"))
    assert 'rutes: there is no such option; did you mean "routes"?' in message
    assert kept(message).read_text() == text + "\n"


def test_an_edit_never_overwrites_a_concurrent_change(fail, server, editor):
    elsewhere = f"{EXECUTABLE} config delete routes --control unix:{server.control} > /dev/null"
    message = fail("config", "edit", env=editor(f'echo "{{}}" > "$1"; {elsewhere}'))
    assert "The configuration changed while you edited it" in message
    assert kept(message).read_text() == "{}\n"
    assert server.api("GET", "/config").json() == {"listeners": {}, "applications": {}}


def test_an_edit_survives_a_stopped_howdah(editor):
    with start_empty() as server:
        end = f"kill -9 {server.pid}; while kill -0 {server.router().pid} 2>/dev/null; do sleep 0.01; done"
        env = editor(f'echo "{{}}" > "$1"; {end}')
        result = howdah("config", "edit", "--control", f"unix:{server.control}", env=env)
        assert result.returncode == 1 and "howdah" in result.stderr
        assert kept(result.stderr).read_text() == "{}\n"
        server.kill()


@pytest.mark.parametrize("script", ["exit 1", 'echo "{}" > "$1"; exit 1'])
def test_an_editor_that_fails_sends_nothing(fail, server, editor, script):
    message = fail("config", "edit", env=editor(script))
    assert "editor" in message and "failed" in message
    assert ("Your text is in" in message) == ("echo" in script)
    assert server.api("GET", "/config").json() == INITIAL


def test_an_editor_may_replace_the_file_but_not_by_a_link(ask, fail, server, editor, tmp_path):
    (tmp_path / "other").write_text("{}")
    replaced = 'printf "{}" > "$1.new"; mv "$1.new" "$1"; cp "$1" "$1~"'
    assert ask("config", "edit", env=editor(replaced)) == DONE
    assert server.api("GET", "/config").json() == {} and not list(tmp_path.glob("howdah-*"))
    message = fail("config", "edit", env=editor(f'ln -sf "{tmp_path}/other" "$1"'))
    assert "cannot read the text: it is a symbolic link, which is not followed" in message
    assert (tmp_path / "other").read_text() == "{}"


def test_an_editor_that_does_not_exist_is_an_error(server):
    env = {"VISUAL": "/no/such/editor", "EDITOR": ""}
    result = howdah("config", "edit", "--control", f"unix:{server.control}", env=env)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("howdah: the editor `/no/such/editor` failed")


def test_ctrl_c_reaches_the_editor_only(server, editor):
    env = editor('trap "" INT; kill -INT 0; sleep 0.1; echo "{}" > "$1"')
    process = subprocess.Popen(
        [str(EXECUTABLE), "config", "edit", "--control", f"unix:{server.control}"],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.communicate(timeout=30)[0].decode() == DONE
    assert process.returncode == 0 and server.api("GET", "/config").json() == {}


# --- status


def test_the_status_is_a_table(folder, run):
    folder.php("index.php", "echo 1;")
    app = {"type": "php", "root": str(folder.root), "index": "index.php", "processes": 2}
    server = run({"applications": {"shop": app}})
    server.workers("shop", 2)
    assert server.get("/").text == "1"
    result = howdah("status", "--control", f"unix:{server.control}")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("connections  ") and lines[1] == "requests     1 in total"
    assert lines[3].split() == ["application", "running", "starting", "idle", "requests", "waiting", "refused"]
    assert lines[4].split() == ["shop", "2", "0", "2", "0", "0", "0"]
    found = json.loads(howdah("status", "--json", "--control", f"unix:{server.control}").stdout)
    assert found == server.api("GET", "/status").json()


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_status_can_be_watched(server, options):
    command = [str(EXECUTABLE), "status", "--watch", *options, "--control", f"unix:{server.control}"]
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        while sum("requests" in line for line in lines) < 2:
            lines.append(watch.stdout.readline())
        assert "\x1b" not in "".join(lines), "the output is not a terminal"
        assert options or "/s" in "".join(lines)
        watch.stdout.close()
        assert watch.wait(30) == 0, "its reader is gone"
        assert watch.stderr.read() == ""
    finally:
        watch.kill()
        watch.wait()
        watch.stderr.close()


def test_a_watch_clears_the_terminal(server):
    ours, theirs = pty.openpty()
    command = [str(EXECUTABLE), "status", "--watch", "--control", f"unix:{server.control}"]
    watch = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE)
    try:
        os.close(theirs)
        shown = b""
        while shown.count(b"\x1b[H\x1b[2J") < 2:
            shown += os.read(ours, 4096)
        assert b"connections" in shown
    finally:
        watch.kill()
        watch.communicate()
        os.close(ours)


def test_a_watch_ends_with_howdah():
    with start_empty() as server:
        command = [str(EXECUTABLE), "status", "--watch", "--control", f"unix:{server.control}"]
        watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert "connections" in watch.stdout.readline()
        server.stop()
        _, message = watch.communicate(timeout=30)
        assert watch.returncode == 1 and message.startswith("howdah: ")


# --- restart


@pytest.mark.parametrize("name", ["shop", "my app", "a/b%2F?"])
def test_an_application_is_restarted(folder, run, name):
    folder.php("index.php", "echo getmypid();")
    app = {"type": "php", "root": str(folder.root), "index": "index.php", "processes": 1}
    server = run(
        {"listeners": {"127.0.0.1:{port}": {"pass": "routes"}}, "routes": [], "applications": {name: app}}
    )
    (before,) = server.workers(name, 1)
    result = howdah("restart", name, "--control", f"unix:{server.control}")
    assert (result.returncode, result.stdout) == (0, f'The application "{name}" has restarted.\n')
    wait_for(lambda: not before.alive())
    assert server.workers(name, 1) != [before]


def test_the_restart_of_a_missing_application_is_an_error(fail):
    assert fail("restart", "shop") == 'Value doesn\'t exist. there is no application "shop"\n'
    assert "is empty; write the name" in fail("restart", "")


# --- certificate


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem"]
    subprocess.run(
        ["openssl", "req", "-x509", *key, "-out", "certificate.pem", "-subj", "/CN=shop.example", "-days", "30"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    both = folder / "bundle.pem"
    both.write_text("".join((folder / name).read_text() for name in ("certificate.pem", "key.pem")))
    return both


@pytest.mark.parametrize("name", ["shop", "shop 2027", "caf\u00e9%"])
def test_a_certificate_is_put_listed_and_removed(ask, fail, bundle, name):
    """No character of a name needs to be escaped."""
    assert ask("certificate", "put", name, bundle) == "Certificate chain uploaded.\n"
    listed = ask("certificate", "list")
    assert json.loads(listed)[name] == json.loads(ask("certificate", "list", name))
    assert "shop.example" in listed and "PRIVATE" not in listed
    assert ask("certificate", "put", name, bundle) == "Certificate chain uploaded.\n", "it is replaced"
    assert ask("certificate", "delete", name) == "Certificate deleted.\n"
    assert json.loads(ask("certificate", "list")) == {}


def test_an_invalid_certificate_is_rejected(fail):
    message = fail("certificate", "put", "shop", "-", stdin="PRIVATE nonsense")
    assert message.startswith("Invalid certificate. ") and "PRIVATE nonsense" not in message
    assert fail("certificate", "list", "shop").startswith("Certificate doesn't exist.")
    assert fail("certificate", "delete", "shop").startswith("Certificate doesn't exist.")
    assert "the file /no/such/bundle does not exist" in fail("certificate", "put", "shop", "/no/such/bundle")
    assert fail("certificate", "put", "a/b", "-", stdin="x").startswith("Invalid certificate name.")


# --- The choice of the howdah


@pytest.mark.parametrize("command", [["status"], ["config", "get"], ["restart", "x"], ["certificate", "list"]])
def test_a_missing_howdah_is_a_one_line_error(command, tmp_path):
    for options in (["--state-dir", tmp_path], ["--control", f"unix:{tmp_path}/control.sock"]):
        result = howdah(*command, *options)
        assert (result.returncode, result.stdout) == (1, "")
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"howdah: no howdah listens on unix:{tmp_path}/control.sock; start one with `howdah run`")


def test_a_port_without_howdah_is_a_one_line_error():
    result = howdah("status", "--control", "127.0.0.1:1")
    assert result.returncode == 1 and "no howdah listens on 127.0.0.1:1; " in result.stderr
    result = howdah("status", "--control", "nonsense")
    assert result.returncode == 2 and "--control" in result.stderr and '"nonsense" is not an address' in result.stderr


def test_a_state_directory_leads_to_its_howdah(socket_path):
    state = socket_path.parent / "state"
    with Howdah(
        lambda _: ["run", "--state-dir", str(state), "--control", f"unix:{state}/control.sock"],
        ready=lambda server: "howdah" in server.stdout,
    ):
        assert json.loads(howdah("config", "get", "--state-dir", state).stdout) == INITIAL
        relative = howdah("config", "--state-dir", "state", "get", prefix=["env", "-C", str(state.parent)])
        assert json.loads(relative.stdout) == INITIAL


def test_an_abstract_socket_and_a_port_work(tmp_path):
    for control in (f"unix:@howdah-test-{os.getpid()}", f"127.0.0.1:{free_port()}"):
        options = ["--state-dir", str(tmp_path / "state"), "--control", control]
        with Howdah(lambda _: ["run", *options], ready=lambda server: "howdah" in server.stdout):
            assert json.loads(howdah("config", "get", "--control", control).stdout) == INITIAL


@needs_root
def test_another_user_gets_the_reason():
    with start_empty() as server:
        other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        result = howdah("status", "--control", f"unix:{server.control}", prefix=other)
        assert result.returncode == 1 and "only root and the user who runs howdah may use it" in result.stderr
        server.control.chmod(0o666)
        result = howdah("status", "--control", f"unix:{server.control}", prefix=other)
        assert result.returncode == 1 and "only root and the user who runs it may use its control API" in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_a_server_that_is_not_howdah_is_reported():
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.handle_request).start()
        result = howdah("status", "--control", f"127.0.0.1:{server.server_port}")
    assert result.returncode == 1 and "404" in result.stderr and "not howdah's control API" in result.stderr


def test_a_closed_output_pipe_is_not_an_error(server):
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [str(EXECUTABLE), "config", "get", "--control", f"unix:{server.control}"], stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (0, b"")
