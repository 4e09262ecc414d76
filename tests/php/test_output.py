"""The body of a response: streaming, buffers, large and binary output, clients that disconnect."""

import contextlib
import gzip
import hashlib
import os
import socket
import stat
import threading
import time

import pytest

from support.http.client import ProtocolError
from support.processes import open_files
from support.waiting import wait_for

SITE = {"ini": {"output_buffering": "0", "zlib.output_compression": "0"}}


# --- Streaming


def test_flush_reaches_the_client_while_the_script_runs(site, server):
    go = site.scratch / "go"
    path = site.page(
        "echo 'first'; flush(); await(SCRATCH . '/go'); echo 'second';"
    )
    with server.connect() as connection:
        connection.send_request("GET", path)
        response, body = connection.stream()
        assert response.status == 200
        assert next(body) == b"first"
        go.touch()
        assert b"".join(body) == b"second"
        assert connection.request("GET", "/pid.php").status == 200


def test_much_output_without_a_flush_reaches_the_client_while_the_script_runs(site, server):
    go = site.scratch / "go-on"
    path = site.page("echo str_repeat('x', 40000); await(SCRATCH . '/go-on'); echo 'end';")
    with server.connect() as connection:
        connection.send_request("GET", path)
        response, body = connection.stream()
        assert response.status == 200
        received = next(body)
        while len(received) < 32 << 10:
            received += next(body)
        go.touch()
        assert received + b"".join(body) == b"x" * 40000 + b"end"


@pytest.mark.parametrize("size", [100_000, 262_000, 263_000, 1_000_000])
def test_a_response_of_any_length_arrives_whole(site, size):
    response = site.get(f"for ($i = 0; $i < {size}; $i += 1000) {{ echo str_repeat(chr(97 + $i / 1000 % 26), 1000); }}")
    expected = b"".join(bytes([97 + n % 26]) * 1000 for n in range((size + 999) // 1000))
    assert response.body == expected


def test_each_flush_arrives_separately(site, server):
    steps = site.scratch / "steps"
    steps.mkdir()
    steps.chmod(0o777)
    code = """
        header('Content-Type: text/event-stream'); header('Cache-Control: no-cache');
        for ($i = 0; $i < 20; $i++) {
            echo "data: $i\\n\\n"; flush();
            await(SCRATCH . "/steps/$i");
        }"""
    with server.connect() as connection:
        connection.send_request("GET", site.page(code))
        response, body = connection.stream()
        assert response.header("Content-Type").startswith("text/event-stream")
        for number in range(20):
            assert next(body) == b"data: %d\n\n" % number
            (steps / str(number)).touch()
        assert b"".join(body) == b""


def test_implicit_flush_sends_each_output(site, server):
    path = site.page(
        "ob_implicit_flush(); echo 'first'; await(SCRATCH . '/implicit'); echo 'end';"
    )
    with server.connect() as connection:
        connection.send_request("GET", path)
        _, body = connection.stream()
        assert next(body) == b"first"
        (site.scratch / "implicit").touch()
        assert b"".join(body) == b"end"


def test_output_buffers_can_be_nested(site):
    code = """
        ob_start(); echo 'thrown away'; ob_end_clean();
        ob_start(); echo 'kept '; $kept = ob_get_clean();
        ob_start(fn ($text) => strtoupper($text)); echo $kept; ob_start(); echo 'nested '; ob_end_flush(); ob_end_flush();
        ob_start(); echo 'left open';"""
    assert site.get(code).text == "KEPT NESTED left open"
    response = site.get("ob_start(); echo 'body'; header('X-After-Output: 1');")
    assert response.text == "body" and response.header("X-After-Output") == "1"


def test_output_buffering_of_php_ini_is_honoured(folder, serve):
    folder.php(
        "index.php", "echo 'x'; flush(); header('X-Late: 1'); echo json_encode([ob_get_level(), headers_sent()]);"
    )
    response = serve(ini={"output_buffering": "4096"}).get("/")
    assert response.text == "x[1,false]" and response.header("X-Late") == "1"


def test_php_output_streams_reach_the_client(site):
    code = "file_put_contents('php://output', 'one '); print 'two '; printf('%s ', 'three'); ?>four<?php "
    assert site.get(code).text == "one two three four"


def test_php_can_compress_its_output(site):
    response = site.get("ob_start('ob_gzhandler'); echo str_repeat('squeeze ', 10000);", {"Accept-Encoding": "gzip"})
    assert response.header("Content-Encoding") == "gzip"
    assert gzip.decompress(response.body) == b"squeeze " * 10000


# --- Large and binary output


def test_a_small_response_has_a_length(site):
    for size in (1, 1000, 8000):
        assert site.get(f"echo str_repeat('x', {size});").header("Content-Length") == str(size)


@pytest.mark.parametrize("size", [4095, 4096, 4097, 16384, 65535, 65536, 65537, 262144, 1048576, 1048577, 5_000_001])
@pytest.mark.parametrize("how", ["at once", "in pieces"])
def test_a_body_of_any_size_is_intact(site, size, how):
    code = f"mt_srand(7); $body = ''; while (strlen($body) < {size}) {{ $body .= pack('N', mt_rand()); }}"
    code += f"$body = substr($body, 0, {size}); header('X-Sha1: ' . sha1($body));"
    code += "echo $body;" if how == "at once" else "foreach (str_split($body, 999) as $piece) { echo $piece; }"
    response = site.get(code)
    assert len(response.body) == size
    assert response.header("X-Sha1") == hashlib.sha1(response.body).hexdigest()


def test_a_hundred_megabytes_can_be_downloaded(site, server):
    code = """
        $hash = hash_init('sha1');
        for ($i = 0; $i < 1600; $i++) { $piece = str_repeat(pack('N', $i), 16384); hash_update($hash, $piece); echo $piece; }
        file_put_contents(SCRATCH . '/hash', hash_final($hash) . ' ' . (memory_get_peak_usage() >> 20));"""
    with server.connect() as connection:
        connection.send_request("GET", site.page(code))
        _, body = connection.stream()
        digest, size = hashlib.sha1(), 0
        for piece in body:
            digest.update(piece)
            size += len(piece)
        assert size == 100 << 20
        assert connection.request("GET", "/pid.php").status == 200
    expected, peak = wait_for(lambda: (site.scratch / "hash").exists() and (site.scratch / "hash").read_text()).split()
    assert digest.hexdigest() == expected
    assert int(peak) < 16


def test_every_byte_survives(site):
    body = bytes(range(256)) * 100
    response = site.get("for ($n = 0; $n < 100; $n++) { for ($i = 0; $i < 256; $i++) { echo chr($i); } }")
    assert response.body == body


@pytest.mark.parametrize(
    "code",
    [
        "readfile($file);",
        "fpassthru(fopen($file, 'r'));",
        "header('Content-Length: ' . filesize($file)); readfile($file);",
        "stream_copy_to_stream(fopen($file, 'r'), fopen('php://output', 'w'));",
        "ob_start(); readfile($file); ob_end_flush();",
    ],
)
def test_php_can_send_files(site, code):
    file = site.root / "large.bin"
    if not file.exists():
        file.write_bytes(os.urandom(20_000_000))
        file.chmod(0o644)
    assert (
        site.get("$file = __DIR__ . '/large.bin'; header('Content-Type: image/png');" + code).body == file.read_bytes()
    )


# --- fastcgi_finish_request()


def test_a_finished_request_is_answered_while_the_script_goes_on(site, server):
    code = """
        header('X-Head: 1');
        echo 'answer';
        $first = fastcgi_finish_request();
        echo 'never sent'; header('X-Late: 1');
        await(SCRATCH . '/finish');
        file_put_contents(SCRATCH . '/finished.tmp', json_encode([$first, fastcgi_finish_request(), connection_status()]));
        rename(SCRATCH . '/finished.tmp', SCRATCH . '/finished');"""
    path = site.page(code)
    with server.connect() as connection:
        response = connection.request("GET", path)
        assert (response.text, response.header("X-Head"), response.all("X-Late")) == ("answer", "1", [])
        assert not (site.scratch / "finished").exists()
        # The connection is free for the next request, and another worker answers it.
        assert connection.request("GET", "/pid.php").text.isdigit()
    (site.scratch / "finish").touch()
    wait_for((site.scratch / "finished").exists)
    assert (site.scratch / "finished").read_text() == "[true,false,0]"
    assert server.get("/pid.php").status == 200


def test_shutdown_functions_run_after_a_finished_request(site, server):
    code = """
        register_shutdown_function(function () { touch(SCRATCH . '/shutdown-ran'); });
        session_save_path(SCRATCH); session_start(); $_SESSION['n'] = 1;
        echo 'x'; fastcgi_finish_request();"""
    assert site.get(code).text == "x"
    wait_for((site.scratch / "shutdown-ran").exists)


# --- Clients that disconnect


def script_that_watches_its_client(ignore: bool, name: str) -> str:
    return f"""
        ignore_user_abort({"true" if ignore else "false"});
        set_time_limit(60);
        register_shutdown_function(function () {{
            global $ended;
            file_put_contents(SCRATCH . '/{name}.tmp', json_encode(
                [connection_status(), connection_aborted(), $ended ?? false]));
            rename(SCRATCH . '/{name}.tmp', SCRATCH . '/{name}');
        }});
        echo 'begun'; flush();
        for ($i = 0; $i < 30000 && !connection_aborted(); $i++) {{ echo str_repeat('x', 1000); flush(); usleep(1000); }}
        $ended = true;"""


@pytest.mark.parametrize(
    "ignore, expected", [(False, "[1,1,false]"), (True, "[1,1,true]")], ids=["stops", "continues with ignore_user_abort"]
)
def test_a_script_notices_that_its_client_disconnected(site, server, ignore, expected):
    name = f"gone-{ignore}"
    path = site.page(script_that_watches_its_client(ignore, name))
    with server.connect() as connection:
        connection.send_request("GET", path)
        _, body = connection.stream()
        assert next(body).startswith(b"begun")
    wait_for((site.scratch / name).exists, "the script's end")
    assert (site.scratch / name).read_text() == expected
    assert server.get("/pid.php").status == 200


def test_a_connected_client_is_not_reported_as_disconnected(site):
    code = "echo 'x'; flush(); echo json_encode([connection_status(), connection_aborted(), ignore_user_abort()]);"
    assert site.get(code).text == "x[0,0,0]"


def test_a_script_without_output_runs_to_its_end_after_its_client_disconnected(site, server):
    """As under PHP-FPM, only output detects a disconnected client."""
    path = site.page(
        "touch(SCRATCH . '/silent'); await(SCRATCH . '/speak'); touch(SCRATCH . '/done');"
    )
    with server.connect() as connection:
        connection.send_request("GET", path)
        wait_for((site.scratch / "silent").exists)
    (site.scratch / "speak").touch()
    wait_for((site.scratch / "done").exists)


def test_connection_resets_do_not_affect_other_clients(site, server):
    path = site.page("for ($i = 0; $i < 200; $i++) { echo str_repeat('x', 20000); }")

    def reset():
        with server.connect() as connection:
            connection.send_request("GET", path)
            connection.socket.recv(1000)
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    threads = [threading.Thread(target=reset) for _ in range(20)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert len(server.get(path).body) == 4_000_000
    for thread in threads:
        thread.join()


def test_a_script_that_dies_while_streaming_truncates_its_response(site, server):
    """The status has been sent: a closed connection is the only way to report the failure."""
    path = site.page("echo 'begun'; flush(); await(SCRATCH . '/begun'); posix_kill(getmypid(), 9);")
    with server.connect() as connection:
        connection.send_request("GET", path)
        _, body = connection.stream()
        assert next(body) == b"begun"
        (site.scratch / "begun").touch()
        with pytest.raises((ProtocolError, ConnectionResetError)):
            next(body)
            pytest.fail("the response ended as if it were whole")
    assert server.get("/pid.php").status == 200


def spooled_bytes(server) -> int:
    """The disk space of the router's temporary files."""
    total = 0
    for link, target in open_files(server.router().pid).items():
        with contextlib.suppress(FileNotFoundError):
            if target.endswith(" (deleted)") and stat.S_ISREG(link.stat().st_mode):
                total += link.stat().st_blocks * 512
    return total


def test_a_client_that_does_not_read_does_not_fill_the_disk(folder, serve):
    """At the size limit of a response's temporary file, PHP waits until the client reads."""
    gigabyte, size = 1 << 30, 1 << 20
    folder.php(
        "endless.php",
        f"for ($n = 0; $n < 1200; $n++) {{ echo str_repeat('x', {size}); file_put_contents(SCRATCH . '/written', $n); }}",
    )
    server = serve(processes=1, ini={"max_execution_time": 0})
    with server.connect() as connection:
        connection.send_request("GET", "/endless.php")
        _, body = connection.stream()
        before = len(next(body))
        wait_for(lambda: spooled_bytes(server) > 0.98 * gigabyte, "the file to be full")
        written = (folder.scratch / "written").read_text

        def is_waiting() -> bool:
            # On a busy machine, PHP sleeps now and then before that, too; and it may be about to write a number.
            known = written()
            time.sleep(0.5)
            return known != "" and written() == known

        wait_for(is_waiting, "PHP to wait", 60)
        assert 1000 <= int(written()) < 1100
        assert spooled_bytes(server) <= 1.001 * gigabyte
        assert before + sum(map(len, body)) == 1200 * size
    wait_for(lambda: spooled_bytes(server) == 0, "the file to be gone")
