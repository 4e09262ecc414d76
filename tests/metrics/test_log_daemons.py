"""syslog and the journal of systemd as destinations of the access log and of howdah's own log."""

import json
import re
import socket
import struct
import subprocess

import pytest

from support.exposition import Exposition
from support.folders import Folder
from support.http.load import Load
from support.server import EXECUTABLE, Howdah, stop_all
from support.waiting import PATIENCE, wait_for

MESSAGE = re.compile(
    r"<(?P<priority>\d+)>1 (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (?P<host>\S+) (?P<tag>\S+) (?P<pid>\d+) "
    r'(?P<log>access|error) (?P<data>-|\[(?:[^\]"]|"(?:[^"\\]|\\.)*")*\]) (?P<text>.*)'
)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = [("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01"), ("X-Request-Id", "abc-1")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("shop"))
    folder.php("index.php", "echo 'hello';")
    return folder


def configuration(site: Folder, path: str, **access_log) -> dict:
    return {
        "routes": [
            {"match": {"uri": "/gone*"}, "action": {"proxy": "http://127.0.0.1:1"}},
            {"match": {"uri": "/static*"}, "action": {"return": 204}},
            {"action": {"pass": "applications/shop"}},
        ],
        "applications": {"shop": {"type": "php", "root": str(site.root), "processes": 1}},
        "settings": {"http": {"request_id": {}}},
        "access_log": {"path": path, **access_log},
    }


class UnixDaemon:
    """A datagram socket that a log daemon would have. The router has a user of its own."""

    def __init__(self, folder):
        self.path = folder / "log.sock"
        folder.chmod(0o755)
        self.start()

    def start(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.path.chmod(0o777)
        self.socket.settimeout(PATIENCE)

    def stop(self) -> None:
        self.socket.close()
        self.path.unlink()

    def message(self) -> bytes:
        return self.socket.recv(1 << 20)


@pytest.fixture
def daemon(tmp_path_factory):
    # The paths of sockets are short.
    daemon = UnixDaemon(tmp_path_factory.mktemp("d"))
    yield daemon
    daemon.socket.close()


def syslog(message: bytes) -> dict:
    found = MESSAGE.fullmatch(message.decode("utf-8"))
    assert found, message
    return found.groupdict()


def journal(message: bytes) -> dict:
    """The fields of an entry, as sd-daemon's native protocol has them."""
    fields = {}
    while message:
        line, _, rest = message.partition(b"\n")
        name, is_text, value = line.partition(b"=")
        if not is_text:
            (length,) = struct.unpack("<Q", rest[:8])
            value, end, rest = rest[8 : 8 + length], rest[8 + length : 9 + length], rest[9 + length :]
            assert end == b"\n"
        name = name.decode("ascii")
        assert re.fullmatch("[A-Z][A-Z0-9_]{0,63}", name) and name not in fields, message
        fields[name], message = value.decode("utf-8"), rest
    return fields


def test_each_request_is_a_message_of_syslog(site, daemon):
    with Howdah.run(configuration(site, f"syslog:{daemon.path}?facility=local3&tag=shop", format="$method $uri $status")) as server:
        server.get("/index.php?a=1", HEADERS)
        found = syslog(daemon.message())
        assert (found["priority"], found["tag"], found["log"], found["text"]) == (str(19 * 8 + 6), "shop", "access", "GET /index.php 200")
        assert found["data"] == f'[howdah@32473 application="shop" request_id="abc-1" trace_id="{TRACE}" status="200"]'
        assert found["pid"] == str(server.router().pid) and found["host"] == socket.gethostname()
        # A change of the destination, without a restart.
        assert server.api("PUT", "/config/access_log/path", json.dumps(f"journald:{daemon.path}")).status == 200
        server.get("/static")
        assert journal(daemon.message())["MESSAGE"] == "GET /static 204"


def test_each_request_is_an_entry_of_the_journal(site, daemon):
    with Howdah.run(configuration(site, f"journald:{daemon.path}", format="json")) as server:
        server.get("/index.php?a=1", HEADERS)
        found = journal(daemon.message())
        expected = {
            "MESSAGE": "GET /index.php?a=1 200", "PRIORITY": "6", "SYSLOG_IDENTIFIER": "howdah", "HOWDAH_LOG": "access",
            "HOWDAH_APPLICATION": "shop", "HOWDAH_REQUEST_ID": "abc-1", "HOWDAH_TRACE_ID": TRACE, "HOWDAH_STATUS": "200",
            "HOWDAH_METHOD": "GET", "HOWDAH_URI": "/index.php?a=1", "HOWDAH_BODY_BYTES": "5", "HOWDAH_CLIENT": "127.0.0.1",
        }  # fmt: skip
        assert expected.items() <= found.items()
        assert "HOWDAH_USER" not in found, "absent values have no field"


@pytest.mark.parametrize("kind", ["syslog", "journald"])
def test_texts_of_clients_are_only_texts(site, daemon, kind):
    target = b"/static/'];%22%0a" + b"x" * 7500
    with Howdah.run(configuration(site, f"{kind}:{daemon.path}", format="json")) as server:
        hostile = b'<script>\t<0>1 \\"\\n PRIORITY=0 \xff\xfe\xe2\x80\xae\xc2\x9b31m'
        server.raw(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\nReferer: " + hostile + b"\r\nUser-Agent: " + hostile + b"\r\n\r\n")
        message = daemon.message()
        if kind == "syslog":
            found = syslog(message)
            assert len(message) <= 8192 and not re.search(rb"[\x00-\x1f\x7f]", message)
            assert found["priority"] == "30" and "/static/'];%22%0a" in found["text"]
        else:
            found = journal(message)
            assert found["HOWDAH_URI"] == target.decode() and found["PRIORITY"] == "6"
            referer = found["HOWDAH_REFERER"]
            assert referer.startswith('<script>\t<0>1 \\"\\n PRIORITY=0 ') and "\ufffd" in referer, referer


def test_the_messages_of_howdah_go_to_a_daemon(site, daemon):
    log = f"journald:{daemon.path}"
    with Howdah.run(configuration(site, "-"), "--log", log) as server:
        entries = []

        def entry(condition):
            def find():
                entries.append(journal(daemon.message()))
                return condition(entries[-1]) and entries[-1]

            return wait_for(find, "the entry")

        ready = entry(lambda found: "is ready" in found["MESSAGE"])
        assert (ready["PRIORITY"], ready["HOWDAH_LOG"]) == ("6", "error")
        server.get("/gone?secret=1", HEADERS)
        warning = entry(lambda found: found.get("HOWDAH_URI") == "/gone")
        assert (warning["PRIORITY"], warning["HOWDAH_TRACE_ID"], warning["HOWDAH_REQUEST_ID"]) == ("3", TRACE, "abc-1")
        assert warning["HOWDAH_METHOD"] == "GET" and "secret" not in str(entries)
        assert "is ready" not in server.stderr
        hostile = "/gone/%22]%0aPRIORITY=0"
        server.raw(f"GET {hostile} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        assert entry(lambda found: found.get("HOWDAH_URI", "").startswith("/gone/"))["PRIORITY"] == "3"
        stop_all([server])
        entry(lambda found: "shutting down" in found["MESSAGE"])


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_a_server_on_the_network_gets_messages(site, protocol):
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(PATIENCE)
        port = listener.getsockname()[1]
        if protocol == "tcp":
            listener.listen()
        path = f"syslog:{protocol}://127.0.0.1:{port}"
        with Howdah.run(configuration(site, path, format="$uri")) as server:
            server.get("/static/1")
            if protocol == "udp":
                assert syslog(listener.recv(10000))["text"] == "/static/1"
                return
            for n in (1, 2):
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as stream:
                    connection.settimeout(PATIENCE)
                    length = b""
                    while (byte := stream.read(1)) != b" ":
                        length += byte
                    assert syslog(stream.read(int(length)))["text"] == f"/static/{n}"
                if n == 1:
                    # The server has restarted: the next line comes over another connection.
                    server.get("/static/2")


def test_a_daemon_that_is_away_loses_nothing_and_delays_no_request(site, daemon):
    daemon.stop()
    with Howdah.run(configuration(site, f"syslog:{daemon.path}", format="$uri")) as server:
        for n in range(100):
            assert server.get(f"/static/{n}").status == 204
        wait_for(lambda: "does not take lines of the access log" in server.stderr, "a log line")
        daemon.start()
        assert [syslog(daemon.message())["text"] for _ in range(100)] == [f"/static/{n}" for n in range(100)]
        wait_for(lambda: "the access log is written again" in server.stderr, "a log line")
        assert server.stderr.count("does not take lines") == 1


def test_lines_that_are_lost_are_counted(site, daemon):
    daemon.stop()
    requests = 300
    with Howdah.run(configuration(site, f"syslog:{daemon.path}", format="$uri")) as server:
        assert Exposition.of(server).values("howdah_system_log_lines_lost_total") == [0, 0]
        # More than 1 MiB.
        for n in range(requests):
            assert server.get(f"/static/{n}/{'x' * 7000}").status == 204

        def lost() -> int:
            return int(Exposition.of(server).sum("howdah_system_log_lines_lost_total", log="access"))

        wait_for(lambda: lost() > 100, "lost lines")
        daemon.start()
        server.get("/static/last")
        received = []
        wait_for(lambda: received.append(syslog(daemon.message())["text"]) or received[-1] == "/static/last", "the last line")
        assert len(received) + lost() == requests + 1
        # Neither the router that counted them nor a change loses the number.
        before = lost()
        router = server.router()
        router.kill()
        wait_for(lambda: server.titled("howdah: router") not in ([], [router]), "another router")
        assert lost() == before
        assert Exposition.of(server).sum("howdah_system_log_lines_lost_total", log="error") == 0


def test_a_daemon_that_hangs_delays_no_request(site, daemon):
    # It takes some messages, then its queue is full.
    with Howdah.run(configuration(site, f"journald:{daemon.path}", format="json")) as server:
        with Load(server, lambda client, turn: client.get("/static").status != 204 and "not 204", clients=2) as load:
            wait_for(lambda: load.correct >= 1000, "answers")
        load.assert_flawless()


@pytest.mark.parametrize(
    "path, reason",
    [
        ("syslog:logs.example.com", "has no valid address; write syslog:/dev/log, syslog:udp://HOST:PORT"),
        ("syslog?facility=local9", 'there is no facility "local9" in syslog; write daemon, user, or local0 to local7'),
        ("syslog?tag=a b", "is no tag of syslog"),
        ("syslog?severity=6", 'syslog has no option "severity"; there are facility and tag'),
        ("journald?tag=x", 'write "journald"'),
        ("journal", 'is not an absolute path; begin it with "/"'),
    ],
)
def test_a_wrong_destination_is_named(path, reason, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"access_log": path}))
    done = subprocess.run([EXECUTABLE, "config", "check", file], capture_output=True, text=True)
    assert done.returncode == 1 and reason in done.stdout + done.stderr, done
    if path != "journal":
        done = subprocess.run([EXECUTABLE, "run", "--log", path], capture_output=True, text=True)
        assert done.returncode == 2 and reason in done.stderr, done
