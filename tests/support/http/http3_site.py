"""A site with HTTP/3: files, scripts, and certificates."""

from support.folders import Folder
from support.http.http3 import Http3Connection
from support.http.tls import Authority
from support.http.udp_relay import UdpRelay
from support.server import Howdah


def targets(folder: Folder) -> dict:
    return {"direct": {"root": str(folder.root)}, "front": {"root": str(folder.root), "script": "index.php"}}


def config(folder: Folder, http=None, listener=None, application=None, tls=None, address="127.0.0.1:{port}", **more) -> dict:
    tls = {"certificate": "shop", **(tls or {})}
    return {
        "listeners": {address: {"pass": "routes", "tls": tls, "http3": True, **(listener or {})}},
        "routes": [
            {"match": {"uri": ["*.php", "*.php/*"]}, "action": {"pass": "applications/app/direct"}},
            {"action": {"share": f"{folder.root}$uri", "fallback": {"pass": "applications/app/front"}}},
        ],
        "applications": {"app": {"type": "php", "processes": 2, "targets": targets(folder), **(application or {})}},
        "access_log": {"path": f"{folder.scratch}/access.log", "format": "$remote_addr $request_line $status $body_bytes_sent"},
        "settings": {"http": http or {}},
        **more,
    }


def fill(folder: Folder) -> Folder:
    folder.php("index.php", "echo json_encode($_SERVER);")
    folder.php("length.php", "echo $_SERVER['CONTENT_LENGTH'] ?? '-', ' ', strlen(file_get_contents('php://input'));")
    folder.php("mark.php", "touch(SCRATCH . '/ran'); echo strlen(file_get_contents('php://input'));")
    folder.php("hash.php", "echo hash_file('sha256', 'php://input');")
    folder.php("large.php", "for ($i = 0; $i < 64; $i++) { echo str_repeat(chr(65 + $i % 26), 32768); }")
    folder.php("slow.php", "touch(SCRATCH . '/running'); await(SCRATCH . '/go'); echo 'done';")
    folder.php("hints.php", "header('Link: </a.css>; rel=preload'); headers_send(103); header_remove('Link'); echo 'done';")
    folder.php("early.php", "echo 'begun'; while (ob_get_level()) { ob_end_flush(); } flush(); await(SCRATCH . '/go'); echo ' done';")
    folder.php("broken.php", "ob_end_clean(); echo 'short'; flush(); usleep(200000); posix_kill(getmypid(), SIGKILL);")
    folder.write("file.txt", "0123456789" * 1000)
    return folder


def with_certificates(folder, authority: Authority, **names: tuple[str, ...]):
    """A state directory with a certificate for each name."""
    state = folder / "state"
    (state / "certs").mkdir(parents=True)
    for name, hosts in names.items():
        (state / "certs" / name).write_text(authority.bundle(*hosts))
    return state


def start(configuration, state, folder, **how) -> Howdah:
    control = folder / "control.sock"
    server = Howdah.run(configuration, "--state-dir", str(state), "--control", f"unix:{control}", **how)
    server.control = control
    return server


def connect(server: Howdah, **how) -> Http3Connection:
    return Http3Connection((server.host, server.port), **{"name": "shop.example", **how})


def connect_through(relay: UdpRelay, **how) -> Http3Connection:
    return Http3Connection(relay.address, **{"name": "shop.example", **how})


def log_lines(folder: Folder) -> list[str]:
    file = folder.scratch / "access.log"
    return file.read_text().splitlines() if file.exists() else []
