"""Applications of the type `fastcgi` in front of Debian's PHP-FPM."""

import hashlib
import json
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.fastcgi import Fpm, fastcgi_application
from support.http.client import ProtocolError
from support.http.load import Load, load_of_clients
from support.http_applications import configuration
from support.server import REPOSITORY
from support.waiting import wait_for

SERVER = "header('Content-Type: application/json'); echo json_encode($_SERVER);"
HELLO = "echo 'hello';"


@pytest.fixture
def fpm():
    """Starts PHP-FPM with these options of its pool; each is stopped when the test ends."""
    started = []

    def start(**options) -> Fpm:
        started.append(Fpm(**options).start())
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def application(run, folder, fpm):
    """A howdah in front of a PHP-FPM, which has these options."""

    def start(pool=None, fpms=None, settings=None, **options):
        fpms = fpms or [fpm(**(pool or {}))]
        config = configuration(fastcgi_application(folder, [each.address for each in fpms], **options))
        if settings:
            config["settings"] = settings
        return run(config)

    return start


def servers(server) -> dict:
    return server.api("GET", "/status/applications/app/servers").json()


# --- Requests


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_variables_are_those_of_php_workers(application, folder, tcp):
    folder.php("server.php", SERVER)
    server = application({"tcp": tcp})
    got = server.request("GET", "/server.php/a%20b?q=1", {"Host": "example.org:81", "X-Two": "2", "Proxy": "x"}).json()
    expected = {
        "REQUEST_METHOD": "GET",
        "REQUEST_URI": "/server.php/a%20b?q=1",
        "QUERY_STRING": "q=1",
        "SCRIPT_NAME": "/server.php",
        "SCRIPT_FILENAME": f"{folder.root}/server.php",
        "PATH_INFO": "/a b",
        "DOCUMENT_ROOT": str(folder.root),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SERVER_NAME": "example.org",
        "SERVER_PORT": str(server.port),
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "example.org:81",
        "HTTP_X_TWO": "2",
    }
    assert {name: got.get(name) for name in expected} == expected
    assert "HTTP_PROXY" not in got and got["SERVER_SOFTWARE"].startswith("howdah/")


def test_parameters_replace_variables_and_change_settings(application, folder):
    folder.php("server.php", "echo $_SERVER['HTTPS'], $_SERVER['APP_ENV'], ini_get('memory_limit'), $_SERVER['SERVER_SOFTWARE'];")
    parameters = {"HTTPS": "on", "APP_ENV": "prod", "PHP_VALUE": "memory_limit=99M", "SERVER_SOFTWARE": "x"}
    assert application(parameters=parameters).get("/server.php").text == "onprod99Mx"


def test_paths_lead_to_scripts_as_for_php_workers(application, folder):
    folder.php("index.php", "echo 'front ', $_SERVER['REQUEST_URI'];")
    folder.php("sub/index.php", "echo 'sub';")
    folder.write("note.txt", "text")
    server = application(front_controller="index.php")
    assert server.get("/any/path?x=1").text == "front /any/path?x=1"
    assert server.get("/sub/").text == "sub"
    moved = server.get("/sub")
    assert (moved.status, moved.header("Location")) == (301, "/sub/")
    without = application()
    assert without.get("/missing.php").status == 404 and without.get("/note.txt").status == 404


def test_static_files_come_from_a_share(run, folder, fpm):
    folder.php("index.php", HELLO)
    folder.write("style.css", "body {}")
    config = configuration(fastcgi_application(folder, fpm().address, front_controller="index.php"))
    config["routes"] = [{"action": {"share": f"{folder.root}$uri", "fallback": {"pass": "applications/app"}}}]
    server = run(config)
    assert server.get("/style.css").header("Content-Type") == "text/css" and server.get("/x").text == "hello"


def test_the_server_may_have_the_scripts_elsewhere(application, folder, tmp_path):
    folder.php("a.php", "echo $_SERVER['SCRIPT_FILENAME'], ' ', $_SERVER['DOCUMENT_ROOT'];")
    (tmp_path / "mounted").symlink_to(folder.root)
    remote = str(tmp_path / "mounted")
    assert application(remote_root=remote).get("/a.php").text == f"{remote}/a.php {remote}"
    # howdah does not look for a fixed script.
    fixed = application(root="/no/such", remote_root=remote, script="a.php")
    assert fixed.get("/any").text == f"{remote}/a.php {remote}"


def test_targets_have_scripts_of_their_own(run, folder, fpm):
    folder.php("a/x.php", "echo 'a';")
    folder.php("b/x.php", "echo 'b';")
    targets = {name: {"root": f"{folder.root}/{name}"} for name in "ab"}
    application = {"type": "fastcgi", "address": fpm().address, "targets": targets}
    routes = [
        {"match": {"host": "b"}, "action": {"pass": "applications/app/b"}},
        {"action": {"pass": "applications/app/a"}},
    ]
    server = run({"applications": {"app": application}, "routes": routes})
    assert (server.get("/x.php").text, server.get("/x.php", {"Host": "b"}).text) == ("a", "b")


@pytest.mark.parametrize("size", [0, 1, 65_279, 65_280, 65_281, 3_000_000])
@pytest.mark.parametrize("buffer", [1000, 10_000_000], ids=["file", "memory"])
def test_a_body_arrives_as_it_was_sent(application, folder, size, buffer):
    folder.php("echo.php", "header('X-Length: ' . ($_SERVER['CONTENT_LENGTH'] ?? '')); readfile('php://input');")
    server = application({"php_admin_value[memory_limit]": "64M"}, settings={"http": {"body_buffer_size": buffer}})
    body = os.urandom(size)
    response = server.post("/echo.php", body, {"Content-Type": "application/octet-stream"})
    assert (response.status, response.header("X-Length")) == (200, str(size)) and response.body == body


def test_an_upload_is_a_file(application, folder):
    folder.php("upload.php", "echo $_POST['a'], ' ', md5_file($_FILES['f']['tmp_name']), ' ', $_FILES['f']['size'];")
    content = os.urandom(300_000)
    body = (
        b'--XX\r\nContent-Disposition: form-data; name="a"\r\n\r\nvalue\r\n'
        b'--XX\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n' + content + b"\r\n--XX--\r\n"
    )
    got = application().post("/upload.php", body, {"Content-Type": "multipart/form-data; boundary=XX"})
    assert got.text == f"value {hashlib.md5(content).hexdigest()} 300000"


def test_a_script_may_answer_without_reading_its_body(application, folder):
    folder.php("early.php", "echo str_repeat('x', 2000000);")
    server = application({"php_admin_flag[enable_post_data_reading]": "off"})
    for _ in range(3):
        response = server.post("/early.php", b"y" * 5_000_000, {"Content-Type": "text/plain"})
        assert response.status == 200 and len(response.body) == 2_000_000


# --- Responses


def test_a_response_has_the_status_and_headers_of_the_script(application, folder):
    folder.php(
        "head.php",
        "http_response_code(418); header('X-A: 1'); header('X-A: 2', false); setcookie('a', 'b'); setcookie('c', 'd'); echo 'tea';",
    )
    folder.php("moved.php", "header('Location: /elsewhere');")
    folder.php("large.php", "for ($i = 0; $i < 50; $i++) { header('X-Large-' . $i . ': ' . str_repeat('x', 1000)); } echo 'ok';")
    folder.php("too-large.php", "for ($i = 0; $i < 100; $i++) { header('X-Large-' . $i . ': ' . str_repeat('x', 1000)); } echo 'ok';")
    server = application()
    response = server.get("/head.php")
    assert (response.status, response.text, response.all("X-A")) == (418, "tea", ["1", "2"])
    assert len(response.all("Set-Cookie")) == 2 and response.header("Content-Length") == "3"
    head = server.request("HEAD", "/head.php")
    assert (head.status, head.body) == (418, b"")
    moved = server.get("/moved.php")
    assert (moved.status, moved.header("Location")) == (302, "/elsewhere")
    assert server.get("/large.php").header("X-Large-49") == "x" * 1000
    assert server.get("/too-large.php").status == 502
    server.wait_for_log_line("the headers of its response have no end within 65536 bytes", "answering 502", 'uri="/too-large.php"')


def test_a_response_is_streamed(application, folder):
    flag = folder.scratch / "flag"
    folder.php("stream.php", f"echo 'first'; flush(); await('{flag}'); echo ' second';")
    server = application({"php_admin_value[output_buffering]": "0"})
    with server.connect() as connection:
        connection.send_request("GET", "/stream.php")
        response, parts = connection.stream()
        assert response.status == 200 and next(parts) == b"first"
        flag.touch()
        assert b"".join(parts) == b" second"


def test_a_slow_client_does_not_hold_a_process(application, folder):
    folder.php("large.php", "for ($i = 0; $i < 300; $i++) { echo str_repeat('x', 100000); }")
    folder.php("hello.php", HELLO)
    server = application({"pm.max_children": 1})
    with server.connect() as slow:
        slow.send_request("GET", "/large.php")
        assert server.get("/hello.php").text == "hello"
        assert len(slow.response().body) == 30_000_000


def test_a_script_sends_a_file(application, folder):
    files = folder.write("protected/file.bin", b"the file").parent
    folder.php("send.php", "header('X-Accel-Redirect: /protected/file.bin'); header('Content-Type: x/y'); echo 'not this';")
    response = application(send_file={"/protected/": str(files)}).get("/send.php")
    assert (response.body, response.header("Content-Type"), response.header("X-Accel-Redirect")) == (b"the file", "x/y", None)


def test_messages_of_scripts_are_in_the_log(application, folder):
    folder.php("log.php", r"error_log(\"one \x1b[31m\n two\"); trigger_error('careful', E_USER_WARNING); echo 'ok';".replace('\\"', '"'))
    server = application()
    assert server.get("/log.php?secret=1").text == "ok"
    server.wait_for_log_line("FastCGI server: PHP message: one \\u{1b}[31m", 'application="app"', 'uri="/log.php"')
    server.wait_for_log_line("careful")
    assert "\x1b" not in server.stderr and "secret" not in server.stderr


# --- The life of the server


def test_connections_are_kept_for_a_short_time(application, folder):
    folder.php("pid.php", "echo getmypid();")
    server = application({"pm.max_children": 2}, keep_alive=0.5)
    with server.connect() as connection:
        pids = {connection.request("GET", "/pid.php").text for _ in range(20)}
    assert len(pids) == 1
    wait_for(lambda: servers(server).popitem()[1]["connections"] == 0, "the end of idle connections")


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_a_kept_connection_does_not_delay_responses(application, folder, tcp):
    """PHP-FPM sends a response in parts, and waits for acknowledgements between them, which the kernel may delay for 40 ms."""
    folder.php("hello.php", HELLO)
    server = application({"tcp": tcp}, keep_alive=60)
    times = []
    with server.connect() as connection:
        for _ in range(30):
            begin = time.monotonic()
            assert connection.request("GET", "/hello.php").text == "hello"
            times.append(time.monotonic() - begin)
    assert sorted(times)[len(times) // 2] < 0.03, times


def test_idle_connections_leave_processes_for_others(application, folder):
    folder.php("pid.php", "echo getmypid();")
    server = application({"pm.max_children": 2}, keep_alive=60, connections=2)
    others = application(fpms=None, pool={"pm.max_children": 1})
    with ThreadPoolExecutor(8) as pool:
        # More clients than processes: no request starves in the backlog while connections are kept.
        answers = list(pool.map(lambda _: server.get("/pid.php").status, range(200)))
    assert set(answers) == {200} and others.get("/pid.php").status == 200


@pytest.mark.parametrize("pm", ["static", "dynamic", "ondemand"])
def test_every_process_manager_answers(application, folder, pm):
    folder.php("wait.php", "usleep(20000); echo 'ok';")
    dynamic = {"pm.start_servers": 1, "pm.min_spare_servers": 1, "pm.max_spare_servers": 2}
    pool = {"pm": pm, "pm.max_children": 4, "pm.max_requests": 7, **(dynamic if pm == "dynamic" else {})}
    server = application(pool)
    with ThreadPoolExecutor(12) as clients:
        methods = ["GET", "POST"] * 60
        answers = list(clients.map(lambda method: server.request(method, "/wait.php").text, methods))
    assert set(answers) == {"ok"}


def test_requests_wait_for_a_server_that_is_not_started(run, folder):
    folder.php("hello.php", HELLO)
    fpm = Fpm()
    server = run(configuration(fastcgi_application(folder, fpm.address)))
    try:
        with ThreadPoolExecutor(4) as clients:
            answers = [clients.submit(server.get, "/hello.php") for _ in range(4)]
            server.wait_for_log_line("cannot connect to a FastCGI server", "requests wait", fpm.address)
            wait_for(lambda: servers(server)[fpm.address]["state"] == "down", "the state")
            fpm.start()
            assert [answer.result().text for answer in answers] == ["hello"] * 4
        server.wait_for_log_line("a FastCGI server can be reached again", fpm.address)
        wait_for(lambda: servers(server)[fpm.address]["state"] == "up", "the state")
    finally:
        fpm.stop()


def test_a_request_waits_no_longer_than_its_queue_timeout(run, folder):
    fpm = Fpm()
    folder.php("hello.php", HELLO)
    server = run(configuration(fastcgi_application(folder, fpm.address, limits={"queue_timeout": 0.3})))
    response = server.get("/hello.php")
    assert response.status == 503 and int(response.header("Retry-After")) >= 1
    status = server.api("GET", "/status/applications/app").json()
    assert status["requests"] == {"active": 0, "waiting": 0, "refused": 1}


def test_a_full_backlog_is_no_error(application, folder):
    folder.php("wait.php", "usleep(5000); echo 'ok';")
    server = application({"pm.max_children": 1, "listen.backlog": 1}, connections=50)
    with ThreadPoolExecutor(60) as clients:
        answers = list(clients.map(lambda _: server.get("/wait.php").status, range(120)))
    assert answers == [200] * 120


def test_a_dead_process_costs_one_request(application, folder):
    folder.php("die.php", "posix_kill(getmypid(), 9);")
    folder.php("once.php", "$f = '" + str(folder.scratch) + "/died'; if (!file_exists($f)) { touch($f); posix_kill(getmypid(), 9); } echo 'again';")
    go = folder.scratch / "go"
    folder.php("begun.php", f"echo 'begun'; flush(); while (!file_exists('{go}')) {{ usleep(2000); }} posix_kill(getmypid(), 9);")
    folder.php("hello.php", HELLO)
    server = application({"php_admin_value[output_buffering]": "0"}, retry="idempotent")
    assert server.post("/die.php", "x").status == 502
    server.wait_for_log_line("a FastCGI server closed a connection without an answer; answering 502", 'method="POST"', 'uri="/die.php"')
    assert server.get("/once.php").text == "again"
    with server.connect() as connection:
        connection.send_request("GET", "/begun.php")
        _, body = connection.stream()
        assert next(body) == b"begun"
        go.touch()
        with pytest.raises(ProtocolError):
            next(body)
    server.wait_for_log_line("before the end of its answer", "closing the client's connection", 'uri="/begun.php"')
    assert server.get("/hello.php").text == "hello"


def test_a_restart_of_the_server_loses_no_repeatable_request(application, folder, fpm):
    folder.php("hello.php", HELLO)
    server_of = fpm()
    server = application(fpms=[server_of], retry="idempotent")
    with Load(server, lambda client, turn: client.get("/hello.php").text != "hello" and "not hello", clients=4) as load:
        wait_for(lambda: load.correct > 50, "some answers")
        # It finishes what it has begun.
        server_of.stop(signal.SIGQUIT)
        time.sleep(0.2)
        server_of.start()
        before = load.correct
        wait_for(lambda: load.correct > before + 50, "answers after the restart")
        server_of.process.send_signal(signal.SIGUSR2)
        before = load.correct
        wait_for(lambda: load.correct > before + 100, "answers after the reload")
    load.assert_flawless()


def test_requests_go_to_the_servers_that_can_be_reached(application, folder, fpm):
    folder.php("pid.php", "usleep(10000); echo posix_getppid();")
    first, second = fpm(), fpm(tcp=True)
    server = application(fpms=[first, second], connections=2)

    def masters() -> set[int]:
        with ThreadPoolExecutor(4) as clients:
            return {int(answer.text) for answer in clients.map(lambda _: server.get("/pid.php"), range(16))}

    assert masters() == {first.process.pid, second.process.pid}
    first.stop()
    assert masters() == {second.process.pid}
    first.start()
    wait_for(lambda: masters() == {first.process.pid, second.process.pid}, "requests for the first server")


def test_a_request_has_a_limited_time(application, folder):
    folder.php("slow.php", "sleep(10);")
    folder.php("hello.php", HELLO)
    server = application(limits={"timeout": 1})
    assert server.get("/slow.php").status == 504
    server.wait_for_log_line("a request takes longer than 1 s (limits/timeout)", "answering 504", 'uri="/slow.php"')
    assert server.get("/hello.php").text == "hello"


def test_a_script_stops_when_its_client_leaves(application, folder):
    began, ended = folder.scratch / "began", folder.scratch / "ended"
    folder.php(
        "endless.php",
        f"register_shutdown_function(fn() => touch('{ended}')); touch('{began}');"
        "for ($i = 0; $i < 1500; $i++) { echo str_repeat('x', 10000); flush(); usleep(10000); }",
    )
    server = application({"php_admin_value[output_buffering]": "0"})
    with server.connect() as connection:
        connection.send_request("GET", "/endless.php")
        wait_for(began.exists, "the script")
    wait_for(ended.exists, "the end of the script")
    wait_for(lambda: server.api("GET", "/status/applications/app/requests/active").text.strip() == "0", "no request")


def test_a_client_that_leaves_the_queue_takes_its_request_along(application, folder):
    began, flag, ran = folder.scratch / "began", folder.scratch / "flag", folder.scratch / "ran"
    folder.php("wait.php", f"touch('{began}'); await('{flag}'); echo 'done';")
    folder.php("late.php", f"touch('{ran}'); echo 'late';")
    server = application({"pm.max_children": 1}, connections=1)

    def requests() -> dict:
        return server.api("GET", "/status/applications/app/requests").json()

    with ThreadPoolExecutor(1) as clients:
        first = clients.submit(server.get, "/wait.php")
        wait_for(began.exists, "the first request")
        with server.connect() as leaving:
            leaving.send_request("GET", "/late.php")
            wait_for(lambda: requests()["waiting"] == 1, "a request that waits")
        wait_for(lambda: requests()["waiting"] == 0, "an empty queue")
        flag.touch()
        assert first.result().text == "done"
    assert not ran.exists() and requests()["refused"] == 0


def test_a_script_may_go_on_after_its_response(application, folder):
    flag, ended = folder.scratch / "flag", folder.scratch / "ended"
    folder.php("finish.php", f"echo 'done'; fastcgi_finish_request(); await('{flag}'); touch('{ended}');")
    folder.php("hello.php", HELLO)
    server = application({"pm.max_children": 2})
    with server.connect() as connection:
        assert connection.request("GET", "/finish.php").text == "done" and not ended.exists()
        assert [connection.request("GET", "/hello.php").text for _ in range(5)] == ["hello"] * 5
    flag.touch()
    wait_for(ended.exists, "the end of the script")


def test_the_configuration_changes_under_load(application, folder, fpm):
    folder.php("hello.php", HELLO)
    first, second = fpm(), fpm()
    server = application(fpms=[first])
    with Load(server, lambda client, turn: client.get("/hello.php").text != "hello" and "not hello", clients=4) as load:
        wait_for(lambda: load.correct > 20, "some answers")
        for address in [second.address, [first.address, second.address], first.address]:
            before = load.correct
            assert server.api("PUT", "/config/applications/app/address", json.dumps(address)).status == 200
            wait_for(lambda: load.correct > before + 20, "answers after the change")
        assert server.api("GET", "/control/applications/app/restart").status == 200
        before = load.correct
        wait_for(lambda: load.correct > before + 20, "answers after the restart")
    load.assert_flawless()


def test_a_replaced_configuration_keeps_no_process_of_the_server(application, folder, fpm):
    """Its connections that wait for another request are closed, although one of its requests still runs elsewhere."""
    flag, ended = folder.scratch / "flag", folder.scratch / "ended"
    folder.php("hold.php", f"echo 'first'; flush(); await('{flag}'); touch('{ended}'); echo ' second';")
    folder.php("hello.php", HELLO)
    pool = {"pm.max_children": 1, "php_admin_value[output_buffering]": "0"}
    server = application(fpms=[fpm(**pool), fpm(**pool)], keep_alive=60)
    idle = lambda: [address for address, state in servers(server).items() if state["idle"] == 1]
    with server.connect() as slow:
        slow.send_request("GET", "/hold.php")
        _, body = slow.stream()
        assert next(body) == b"first"
        # The other server has fewer requests.
        assert server.get("/hello.php").text == "hello"
        wait_for(idle, "a connection that waits for its next request")
        assert server.api("PUT", "/config/applications/app/address", json.dumps(idle()[0])).status == 200
        assert server.get("/hello.php").text == "hello" and not ended.exists()
        flag.touch()
        assert b"".join(body) == b" second"


@pytest.mark.load
@pytest.mark.parametrize("pm, tcp", [("static", False), ("dynamic", True), ("ondemand", False), ("static", True)])
def test_1500_clients_of_a_small_backlog_get_no_error(application, folder, tcp, pm):
    """All of them wait at the same time, and come again. HOWDAH_LOAD_SECONDS=30 makes it longer."""
    folder.php("wait.php", "usleep(1000); echo 'hello';")
    dynamic = {"pm.start_servers": 1, "pm.min_spare_servers": 1, "pm.max_spare_servers": 2} if pm == "dynamic" else {}
    pool = {"tcp": tcp, "pm": pm, "pm.max_children": 2, "listen.backlog": 128, **dynamic}
    server = application(pool, limits={"queue_timeout": 60})
    seconds = float(os.environ.get("HOWDAH_LOAD_SECONDS", "1"))
    report = load_of_clients(f"http://127.0.0.1:{server.port}/wait.php", 1500, seconds, expect="hello")
    print(pm, "tcp" if tcp else "unix", report["outcomes"])
    assert set(report["outcomes"]) == {"200"} and report["outcomes"]["200"] >= 1500, report


# --- The page of the documentation


def test_the_configuration_of_the_page_works(run, folder, fpm):
    folder.php("index.php", "echo 'index ', $_SERVER['REQUEST_URI'];")
    folder.php("a.php", HELLO)
    folder.write("style.css", "css")
    page = (REPOSITORY / "docs/fastcgi.md").read_text().split("### howdah in front of my FPM")[1]
    text = re.search(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1]
    text = text.replace("/srv/shop/public", str(folder.root)).replace("*:8080", "127.0.0.1:{port}")
    config = json.loads(text.replace("unix:/run/php/php8.2-fpm.sock", fpm(**{"pm.max_children": 5}).address))
    if os.geteuid() != 0:
        del config["settings"]
    server = run(config)
    for target, expected in {"/a.php": "hello", "/": "index /", "/a-post/?x=1": "index /a-post/?x=1", "/style.css": "css"}.items():
        assert server.get(target).text == expected
    # The same with howdah's own workers, and back, under a client that sees no difference.
    application = config["applications"]["shop"]
    own = {name: application[name] for name in ("root", "front_controller")} | {"type": "php", "processes": 1}
    for change in (own, application):
        assert server.api("PUT", "/config/applications/shop", change).status == 200
        assert server.get("/a.php").text == "hello"
