"""`send_file` works the same for applications of each kind: the worker names a file, and howdah sends it."""

import pytest

from support.async_site import LOOP as ASYNC_LOOP
from support.http_applications import http_application
from support.roadrunner_applications import roadrunner_application

CONTENT = "0123456789" * 100_000

WORKER = """
$handler = static function (): void {
    header('Content-Type: x/y');
    header('Set-Cookie: a=1');
    header('ETag: "script"');
    header("{$_GET['name']}: {$_GET['file']}");
    echo 'the body of the script';
};
"""
ASYNC = (
    ASYNC_LOOP
    + """
serve(function (Request $request): void {
    $get = $request->query();
    $headers = ['Content-Type' => 'x/y', 'Set-Cookie' => 'a=1', 'ETag' => '"script"', $get['name'] => $get['file']];
    $request->respond(200, $headers, 'the body of the script');
});
"""
)
HTTP = """
$listener = stream_socket_server('unix://' . substr(getenv('HOWDAH_ADDRESS'), 5));
while (true) {
    if (!$client = @stream_socket_accept($listener, 60)) { continue; }
    $head = '';
    while (!str_contains($head, "\\r\\n\\r\\n") && ($read = fread($client, 8192)) !== '' && $read !== false) { $head .= $read; }
    parse_str((string) parse_url(explode(' ', $head)[1] ?? '/', PHP_URL_QUERY), $get);
    if (str_contains($head, 'Upgrade: echo')) {
        fwrite($client, "HTTP/1.1 101 x\\r\\nConnection: upgrade\\r\\nUpgrade: echo\\r\\nX-Accel-Redirect: /protected/a.txt\\r\\n\\r\\n");
        fwrite($client, 'echo of ' . fread($client, 100));
        fclose($client);
        continue;
    }
    $named = isset($get['name']) ? "{$get['name']}: {$get['file']}\\r\\n" : '';
    fwrite($client, "HTTP/1.1 200 OK\\r\\nContent-Type: x/y\\r\\nSet-Cookie: a=1\\r\\nETag: \\"script\\"\\r\\n{$named}Content-Length: 22\\r\\n"
        . "Connection: close\\r\\n\\r\\nthe body of the script");
    fclose($client);
}
"""
ROADRUNNER = """
require __DIR__ . '/Worker.php';
$worker = new Example\\Worker();
while ($request = $worker->waitRequest()) {
    parse_str($request[0]['rawQuery'], $get);
    $worker->respond(200, 'the body of the script', ['Content-Type' => ['x/y'], 'Set-Cookie' => ['a=1'], 'ETag' => ['"script"'],
        $get['name'] => [$get['file']]]);
}
"""


def application(kind: str, folder) -> dict:
    php = {"type": "php", "root": str(folder.root), "processes": 1}
    match kind:
        case "worker":
            folder.php("worker.php", WORKER + "while (howdah\\handle_request($handler)) { }")
            return {**php, "worker": {"script": "worker.php"}}
        case "several workers":
            folder.php("worker.php", WORKER + "while (howdah\\handle_request($handler)) { }")
            return {**php, "worker": [{"script": "worker.php", "match": "/*"}]}
        case "async":
            folder.php("server.php", ASYNC)
            return {**php, "worker": {"script": "server.php", "concurrency": 10}}
        case "roadrunner":
            made = roadrunner_application(folder)
            folder.php("worker.php", ROADRUNNER)
            return made
        case "http":
            made = http_application(folder)
            folder.php("server.php", HTTP)
            return made


@pytest.fixture(scope="module", params=["worker", "several workers", "async", "roadrunner", "http"])
def kind(request):
    return request.param


@pytest.fixture
def files(folder):
    files = folder.root.parent / "files"
    files.mkdir()
    files.chmod(0o755)
    for name in ("a.txt", ".env"):
        (files / name).write_text(CONTENT)
        (files / name).chmod(0o644)
    return files


@pytest.fixture
def server(folder, files, kind, run):
    app = application(kind, folder)
    return run(
        {
            "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
            "routes": [
                {"match": {"uri": "/plain"}, "action": {"pass": "applications/plain"}},
                {"action": {"pass": "applications/app"}},
            ],
            "applications": {"app": {**app, "send_file": {"/protected/": str(files)}}, "plain": app},
        }
    )


def test_the_file_is_sent_with_the_headers_of_the_worker(server, files):
    for name, file in (("X-Accel-Redirect", "/protected/a.txt"), ("X-Sendfile", f"{files}/a.txt")):
        answer = server.get(f"/?name={name}&file={file}")
        assert (answer.status, answer.text) == (200, CONTENT)
        assert (answer.header("Content-Type"), answer.header("Set-Cookie"), answer.header(name)) == ("x/y", "a=1", None)
        assert answer.header("ETag") != '"script"' and answer.header("Last-Modified")
        part = server.request("GET", f"/?name={name}&file={file}", {"Range": "bytes=5-9"})
        assert (part.status, part.text) == (206, "56789")
        head = server.request("HEAD", f"/?name={name}&file={file}")
        assert (head.status, head.header("Content-Length"), head.body) == (200, str(len(CONTENT)), b"")


def test_nothing_else_is_sent(server):
    for file in ("/protected/.env", "/protected/../site/worker.php", "/etc/hostname"):
        assert server.get(f"/?name=X-Accel-Redirect&file={file}").status == 404
    assert server.get("/?name=X-Accel-Redirect&file=/protected/a.txt").text == CONTENT, "the worker goes on"


def test_without_the_option_the_header_is_like_any_other(server):
    answer = server.get("/plain?name=X-Accel-Redirect&file=/protected/a.txt")
    assert (answer.text, answer.header("X-Accel-Redirect")) == ("the body of the script", "/protected/a.txt")


def test_a_missing_folder_is_rejected(server):
    answer = server.api("PUT", "/config/applications/app/send_file", {"/protected/": "/nowhere"})
    assert answer.status == 500 and "applications/app/send_file/%2Fprotected%2F" in answer.text, answer.text


@pytest.mark.parametrize("kind", ["http"], indirect=True)
def test_a_tunnel_goes_on(server):
    with server.connect() as connection:
        connection.send_request("GET", "/", {"Connection": "upgrade", "Upgrade": "echo"})
        connection.socket.settimeout(10)
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.socket.recv(4096)
        assert received.startswith(b"HTTP/1.1 101 "), received
        connection.socket.sendall(b"hello")
        while b"echo of hello" not in received:
            part = connection.socket.recv(4096)
            assert part, received
            received += part
