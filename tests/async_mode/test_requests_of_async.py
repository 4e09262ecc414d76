"""Requests and responses in async mode."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.waiting import wait_for

VALUES = """
serve(function (Request $request): void {
    $value = eval('return ' . $request->header('X-Code') . ';');
    text($request, json_encode($value, JSON_THROW_ON_ERROR));
});
"""


def test_one_worker_holds_many_requests_at_a_time(start):
    # None is answered before all are there.
    site = start("$held = []; serve(function (Request $request) use (&$held): void { $held[] = $request;"
                 "if (count($held) === 50) { foreach ($held as $one) { text($one, $one->path()); } $held = []; } });")
    for _ in range(3):
        with ThreadPoolExecutor(50) as pool:
            answers = list(pool.map(lambda number: site.server.get(f"/{number}"), range(50)))
        assert [answer.text for answer in answers] == [f"/{number}" for number in range(50)]
    assert len(site.server.workers(count=1)) == 1


def test_a_worker_holds_no_more_requests_than_configured(start):

    site = start("$held = []; serve(function (Request $request) use (&$held): void { $held[] = $request; "
                 "file_put_contents(SCRATCH . '/held', count($held)); "
                 "later(0.3, function () use (&$held): void { text(array_shift($held), 'x'); }); });", concurrency=8)
    held = []
    with ThreadPoolExecutor(40) as pool:
        clients = [pool.submit(site.server.get, "/") for _ in range(40)]
        while not all(client.done() for client in clients):
            text = (site.scratch / "held").read_text() if (site.scratch / "held").exists() else ""
            held.append(int(text or 0))
    assert {client.result().status for client in clients} == {200}
    assert max(held) == 8


def test_the_request_is_whole(start):
    site = start(VALUES)

    def value(code: str, method="GET", target="/", headers=(), body=None):
        return site.server.request(method, target, {"X-Code": code, **dict(headers)}, body).json()

    assert value("[$request->method(), $request->uri(), $request->path()]", target="/a%20b?c=d") == ["GET", "/a%20b?c=d", "/a%20b"]
    assert value("$request->query()", target="/?a=1&b[]=2&b[x]=%20&c") == {"a": "1", "b": {"0": "2", "x": " "}, "c": ""}
    assert value("$request->query()") == []
    headers = {"X-Some-Thing": "some thing", "Cookie": "a=b", "Content-Type": "text/x"}
    code = "[$request->header('x-some-THING'), $request->header('cookie'), $request->header('content-type'), $request->header('Nope')]"
    assert value(code, "POST", headers=headers, body=b"x") == ["some thing", "a=b", "text/x", None]
    found = value("$request->headers()", "POST", headers=headers, body=b"body")
    assert found["X-Some-Thing"] == "some thing" and found["Content-Length"] == "4"
    server = value("$request->server()", target="/p?q=1")
    assert server["REQUEST_URI"] == "/p?q=1" and server["SCRIPT_FILENAME"] == str(site.root / "server.php")
    assert server["REMOTE_ADDR"] == "127.0.0.1" and server["HTTP_X_CODE"] == "$request->server()"
    assert value("$request->body()", "POST", body=b"a=1") == "a=1"
    assert value("$request->body()") == ""
    long = b"0123456789" * 300_000
    found = value("[md5($request->body()), strlen($request->body())]", "POST", body=long)
    assert found == [hashlib.md5(long).hexdigest(), len(long)]


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="a[x]"\r\n\r\none & two\r\n'
    b'--b\r\nContent-Disposition: form-data; name="f"; filename="n.txt"\r\nContent-Type: text/x\r\n\r\nfirst\r\n'
    b'--b\r\nContent-Disposition: form-data; name="g[]"; filename="m.txt"\r\n\r\nsecond\r\n--b--\r\n'
)
MULTIPART = {"Content-Type": "multipart/form-data; boundary=b"}


def test_forms_are_parsed_as_php_does(start):
    site = start("set_error_handler(function () { throw new Exception('the handler of the boot'); });" + VALUES)

    def value(code: str, body: bytes, headers=(), method="POST"):
        return site.server.request(method, "/?q=1", {"X-Code": code, **dict(headers)}, body).json()

    urlencoded = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    both = "[$request->post(), $request->files()]"
    assert value(both, b"a=1&b[]=2&b[x]=%20&c", urlencoded, "PUT") == [{"a": "1", "b": {"0": "2", "x": " "}, "c": ""}, []]
    assert value(both, b'{"a": 1}', {"Content-Type": "application/json"}) == [[], []]
    assert value(both, b"a=1", {"Content-Type": "application/x-www-form-urlencodedX"}) == [[], []]
    assert value(both, b"") == [[], []]
    post, files = value(both, FORM, MULTIPART)
    assert post == {"a": {"x": "one & two"}} and sorted(files) == ["f", "g"]
    assert {**files["f"], "tmp_name": ""} == {
        "name": "n.txt", "full_path": "n.txt", "type": "text/x", "tmp_name": "", "error": 0, "size": 5,
    }  # fmt: skip
    assert files["g"]["name"] == ["m.txt"] and files["g"]["size"] == [6]
    assert value("[$request->post(), $request->post(), $request->body() !== '']", FORM, MULTIPART) == [post, post, True]
    assert value("[$_POST, $_FILES]", FORM, MULTIPART) == [[], []], "superglobals belong to no request"
    assert value(both, b"no form", MULTIPART) == [[], []] and value(both, b"x", {"Content-Type": "multipart/form-data"}) == [[], []]
    many = value("count($request->post(), COUNT_RECURSIVE)", b"&".join(b"f%d=1" % number for number in range(3000)), urlencoded)
    assert many == 1000, "max_input_vars"
    assert "the handler of the boot" not in site.server.stderr


def test_uploaded_files_are_kept_or_removed_with_their_request(start):
    site = start(
        "serve(function (Request $request): void { $files = $request->files(); $names = [$files['f']['tmp_name'], $files['g']['tmp_name'][0]];"
        "$is = array_map('is_uploaded_file', $names); $moved = move_uploaded_file($names[0], SCRATCH . '/moved');"
        "text($request, json_encode([$names, $is, $moved, file_get_contents($names[1])])); });"
    )
    for _ in range(3):
        names, uploaded, moved, second = site.server.post("/", FORM, MULTIPART).json()
        assert (uploaded, moved, second) == ([True, True], True, "second")
        assert (site.scratch / "moved").read_text() == "first"
    site.server.post("/", FORM, MULTIPART)
    wait_for(lambda: not Path(names[1]).exists(), "the end of the file")
    assert not Path(names[0]).exists()


def test_a_form_beyond_memory_limit_ends_the_worker_only(start):
    site = start("serve(fn (Request $request) => text($request, (string) count($request->post())));",
                 options={"admin": {"memory_limit": "16M"}})
    body = b"".join(b'--b\r\nContent-Disposition: form-data; name="f%d"\r\n\r\n%s\r\n' % (n, b"x" * 100_000) for n in range(75))
    assert site.server.post("/", body[: len(body) // 3] + b"\r\n--b--\r\n", MULTIPART).status == 200
    assert site.server.post("/", body + b"--b--\r\n", MULTIPART).status == 500
    site.server.wait_for_log_line("Allowed memory size of 16777216 bytes exhausted")
    assert site.server.post("/", FORM, MULTIPART).text == "1"


def test_the_response_is_as_written(start):
    site = start("serve(fn (Request $request) => $request->respond(...eval('return ' . $request->header('X-Code') . ';')));")

    def answer(code: str, method="GET"):
        return site.server.request(method, "/", {"X-Code": code})

    response = answer("[201, ['X-One' => 'a', 'Set-Cookie' => ['a=1', 'b=2'], 'X-Number' => 5], 'created']")
    assert (response.status, response.text, response.header("X-One"), response.header("X-Number")) == (201, "created", "a", "5")
    assert response.all("Set-Cookie") == ["a=1", "b=2"]
    assert response.header("Content-Type").startswith("text/html")
    assert answer("[200, ['content-type' => 'text/x'], 'x']").all("Content-Type") == ["text/x"]
    empty = answer("[204]")
    assert (empty.status, empty.body, empty.header("Content-Type")) == (204, b"", None)
    head = answer("[200, [], 'twelve bytes']", "HEAD")
    assert (head.status, head.body, head.header("Content-Length")) == (200, b"", "12")
    big = answer("[200, [], str_repeat('0123456789', 200000)]")
    assert big.body == b"0123456789" * 200_000


def test_a_response_is_streamed(start):
    site = start(
        "serve(function (Request $request): void { $request->start(200, ['Content-Type' => 'text/event-stream']);"
        "$request->write(\"data: 1\\n\\n\"); $await = function () use ($request, &$await): void {"
        "if (!file_exists(SCRATCH . '/go')) { later(0.01, $await); return; } $request->write('data: 2'); $request->end('!'); };"
        "$await(); });"
    )
    with site.server.connect() as connection:
        connection.send_request("GET", "/")
        response, parts = connection.stream()
        assert response.header("Content-Type") == "text/event-stream"
        assert next(parts) == b"data: 1\n\n"
        (site.scratch / "go").touch()
        assert b"".join(parts) == b"data: 2!"


def test_a_client_that_leaves_is_noticed(start):
    site = start(
        "serve(function (Request $request): void { if ($request->path() === '/log') { text($request, 'ok'); return; }"
        "$request->start(); $request->write('first'); $poll = function () use ($request, &$poll): void {"
        "if ($request->isOpen()) { later(0.01, $poll); return; }"
        "file_put_contents(SCRATCH . '/gone', var_export([$request->write('x'), $request->end(), $request->isOpen()], true)); };"
        "$poll(); });"
    )
    with site.server.connect() as connection:
        connection.send_request("GET", "/")
        assert next(connection.stream()[1]) == b"first"
        assert not (site.scratch / "gone").exists()
    wait_for((site.scratch / "gone").exists, "the worker's notice")
    wait_for(lambda: (site.scratch / "gone").read_text().count("false") == 3, "three times false")
    assert site.server.get("/log").text == "ok"


def test_misuse_is_an_error_that_names_it(start):
    site = start(
        "serve(function (Request $request): void { try { eval($request->header('X-Code')); text($request, 'no error'); }"
        "catch (Throwable $error) { $text = get_class($error) . ': ' . $error->getMessage();"
        "if ($request->isOpen()) { text($request, $text); } else { file_put_contents(SCRATCH . '/error', $text); } } });"
    )

    def error(code: str) -> str:
        (site.scratch / "error").unlink(missing_ok=True)
        text = site.server.get("/", {"X-Code": code}).text
        if text != "once":
            return text
        wait_for((site.scratch / "error").exists, "the error")
        return wait_for((site.scratch / "error").read_text, "its text")

    once = "Error: The response of this request has begun already: it is written once"
    assert error("$request->respond(200, [], 'once'); $request->respond();") == once
    assert error("$request->respond(200, [], 'once'); $request->start();") == once
    assert error("$request->respond(200, [], 'once'); $request->write('x');") == "Error: The response is complete"
    assert error("$request->respond(200, [], 'once'); $request->body();") == (
        "Error: The body must be read before the response is complete")
    assert error("$request->write('x');") == "Error: start() must begin the response first"
    assert error("$request->end();") == "Error: start() must begin the response first"
    respond = "ValueError: howdah\\Async\\Request::respond(): Argument "
    assert error("$request->respond(100);") == respond + "#1 ($status) must be between 200 and 999"
    for headers in ("['x']", "['' => 'x']", "['a b' => 'x']", "[\"a\\0\" => 'x']", "[\"a\\r\\nb\" => 'x']"):
        assert error(f"$request->respond(200, {headers});") == respond + "#2 ($headers) must have names of headers as keys"
    for value in ("\\r\\nX: y", "\\n", "\\0"):
        assert error(f"$request->respond(200, ['A' => [\"1\", \"{value}\"]]);") == (
            respond + '#2 ($headers) must not have a value with a line break or a NUL, in "A"')
    assert error("new howdah\\Async\\Request();") == "Error: howdah\\Async\\accept() makes the requests"
    assert error("clone $request;") == "Error: Trying to clone an uncloneable object of class howdah\\Async\\Request"
    assert "Serialization of 'howdah\\Async\\Request' is not allowed" in error("serialize($request);")
    assert "is an internal class marked as final" in error(
        "(new ReflectionClass('howdah\\Async\\Request'))->newInstanceWithoutConstructor();")


def test_a_header_whose_text_answers_other_requests_mixes_nothing_up(start):
    site = start(
        "final class Text { public function __construct(private Closure $text) { }"
        "public function __toString(): string { return ($this->text)(); } }"
        "$first = null; serve(function (Request $request) use (&$first): void {"
        "if ($first === null) { $first = $request; return; }"
        "$text = new Text(function () use ($first): string { $first->respond(200, ['X-First' => 'a'], 'first'); return 'b'; });"
        "$request->respond(200, ['X-Second' => 'c', 'X-Text' => $text], 'second'); $first = null; });"
    )
    with ThreadPoolExecutor(2) as pool:
        answers = {answer.text: answer for answer in pool.map(site.server.get, ["/", "/"])}
    first, second = answers["first"], answers["second"]
    assert (first.header("X-First"), first.header("X-Second"), first.header("X-Text")) == ("a", None, None)
    assert (second.header("X-First"), second.header("X-Second"), second.header("X-Text")) == (None, "c", "b")


def test_a_header_whose_text_replaces_the_list_of_its_values_is_written_as_given(start):
    site = start(
        "final class Text { public function __construct(private Closure $text) { }"
        "public function __toString(): string { return ($this->text)(); } }"
        "serve(function (Request $request): void { $others = []; $text = new Text(function () use (&$list, &$others): string {"
        "$list = null; for ($i = 0; $i < 10; $i++) { $others[] = array_fill(0, 3, 'other'); } return 'a'; });"
        "$list = [$text, str_repeat('b', 3), str_repeat('c', 3)]; $request->respond(200, ['X-Text' => &$list], 'x'); });"
    )
    assert site.server.get("/").all("X-Text") == ["a", "bbb", "ccc"]


def test_output_and_superglobals_belong_to_no_request(start):
    site = start("serve(function (Request $request): void { echo 'printed ', $request->path(), \"\\n\"; header('X-Left: 1');"
                 "text($request, json_encode([$_GET, $_POST, $_COOKIE, isset($_SERVER['REQUEST_METHOD'])])); });")
    response = site.server.get("/a?b=c", {"Cookie": "d=e"})
    assert response.json() == [[], [], [], False] and response.header("X-Left") is None
    site.server.wait_for_log_line("printed /a")


def test_the_time_limit_of_php_does_not_end_the_loop(start):
    site = start("serve(function (Request $request): void { for ($until = microtime(true) + 2.5; microtime(true) < $until;) { }"
                 "text($request, (string) getmypid()); });", options={"admin": {"max_execution_time": "1"}})
    assert site.server.get("/").text == str(site.server.workers(count=1)[0].pid)


def test_a_stream_that_the_script_closes_is_made_again(start):
    site = start("while (howdah\\Async\\is_running()) { $stream = howdah\\Async\\stream(); $read = [$stream]; $none = null;"
                 "stream_select($read, $none, $none, 60); if ($request = howdah\\Async\\accept()) { fclose($stream);"
                 "text($request, 'ok'); } }")
    assert [site.server.get("/").text for _ in range(5)] == ["ok"] * 5


def test_a_forked_process_cannot_answer(start):
    site = start(
        "serve(function (Request $request): void { $child = pcntl_fork(); if ($child === 0) {"
        "try { howdah\\Async\\accept(); } catch (Error $error) { file_put_contents(SCRATCH . '/error', $error->getMessage()); }"
        "$request->respond(200, [], 'child'); exit(0); }"
        "pcntl_waitpid($child, $status); text($request, 'parent'); });"
    )
    assert [site.server.get("/").text for _ in range(3)] == ["parent"] * 3
    assert (site.scratch / "error").read_text() == (
        "howdah\\Async\\accept() cannot be called in a process that the worker has forked")
    assert len(site.server.workers(count=1)) == 1


def test_an_object_that_an_extension_makes_is_an_empty_request(start):
    """PDO makes objects of any class, without a constructor."""
    site = start(r"""serve(function (Request $request): void {
        if (!extension_loaded('pdo_sqlite')) { text($request, 'none'); return; }
        $rows = (new PDO('sqlite::memory:'))->query("SELECT 'howdah\\Async\\Request'");
        $made = $rows->fetchAll(PDO::FETCH_CLASS | PDO::FETCH_CLASSTYPE)[0];
        text($request, json_encode([$made->method(), $made->uri(), $made->path(), $made->query(), $made->header('Host'),
            $made->headers(), $made->server(), $made->isOpen(), $made->respond()]));
    });""")
    answer = site.server.get("/")
    if answer.text == "none":
        pytest.skip("this PHP has no pdo_sqlite")
    assert answer.json() == ["", "", "", [], None, [], [], False, False]
