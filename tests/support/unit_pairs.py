"""Pairs of a configuration with requests, and the answers of NGINX Unit: read from tests/unit_compat, and played.

The same steps are played against Unit (tests/unit_compat/record) and against howdah (test_unit_pairs.py). A server is
something with `put(configuration)`, which returns the control API's answer, and `address`, where its listener is.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Protocol

from support.http.client import ClosedWithoutResponse, Connection, ProtocolError, Response
from support.http.upstream import Upstream, Visit
from support.waiting import wait_for

DATA = Path(__file__).resolve().parents[1] / "unit_compat"

NOT_RECORDED = DATA / "not_recorded.json"
"""Options without a case, each with the reason."""

NOT_COMPARED = {"date", "etag", "last-modified", "accept-ranges", "connection", "content-length", "transfer-encoding"}
"""Headers that are not recorded: they are the server's own, or belong to one connection."""


BEGIN_OF_TABLE = "<!-- differences from NGINX Unit: made of tests/unit_compat -->\n"
END_OF_TABLE = "<!-- end of differences -->"


class Server(Protocol):
    """A server that a case is played against. Its listener of the case is at `address`."""

    address: str

    def put(self, configuration: dict | bytes) -> Response: ...

    def edit(self, method: str, path: str, body: object = None) -> Response: ...


@dataclass
class Pair:
    """A case of the data: a configuration, requests, and the recorded answer of Unit."""

    topic: str
    name: str
    data: dict
    common: dict

    @property
    def reason(self) -> str | None:
        """Why howdah answers differently, if it does."""
        return self.data.get("reason")

    @property
    def error(self) -> str | None:
        """A part of howdah's error, with the path of the option, if howdah rejects the configuration. `…` is any text."""
        return self.data.get("error")

    @property
    def expected(self) -> dict:
        """The answer of howdah."""
        answer = {**self.data["unit"], **self.data.get("howdah", {})}
        return answer if answer["config"] == 200 else {"config": answer["config"]}

    def play(self, server: Server, folder: Path) -> dict:
        """The answer of a server: the status of its configuration, the responses, the lines of the access log."""
        with contextlib.ExitStack() as stack:
            place = {"listen": server.address, "port": server.address.rpartition(":")[2], "root": str(folder)}
            for name, answer in self.data.get("upstreams", {}).items():
                place["upstream:" + name] = stack.enter_context(upstream(answer))
            make_files(folder, {**self.common.get("files", {}), **self.data.get("files", {})}, {**place, **namespaces()})
            for name in self.data.get("certificates", []):
                upload_certificate(server, name, folder)
            answer: dict = {"config": server.put(self.configuration(place)).status}
            if answer["config"] != 200:
                return answer
            if edits := self.data.get("edits"):
                answer["edits"] = [server.edit(*filled_in(edit, place)).status for edit in edits]
            if requests := self.requests():
                answer["responses"] = [play_request(request, place) for request in requests]
            if count := self.data.get("lines"):
                log = folder / "access.log"
                wait_for(lambda: log.exists() and len(log.read_text().splitlines()) >= count, f"{count} lines of the log")
                answer["log"] = [masked(line, place) for line in log.read_text(errors="surrogateescape").splitlines()]
            return answer

    def configuration(self, place: dict[str, str]) -> dict | bytes:
        if text := self.data.get("text"):
            return filled_in(text, place).encode("latin-1")
        listeners = {"listeners": {"{listen}": {"pass": "routes"}}}
        return filled_in({**listeners, **self.data["config"]}, place)

    def requests(self) -> list[dict]:
        each = [{"request": self.data["each"] + end} for end in self.data.get("of", [])]
        return [*self.data.get("requests", []), *each]


def topics() -> list[Path]:
    """The files with cases."""
    return [file for file in sorted(DATA.glob("*.json")) if file != NOT_RECORDED]


def pairs(file: Path) -> list[Pair]:
    """The cases of a topic."""
    topic = json.loads(file.read_text())
    return [Pair(file.stem, case["name"], case, topic) for case in topic["cases"]]


def in_any_order(answer: dict) -> dict:
    """The answer with a sorted log: requests on two connections are logged in any order."""
    return {**answer, "log": sorted(answer.get("log", []))}


def with_differences(page: str, cases: list[Pair]) -> str:
    """The page with its table of differences made again."""
    before, rest = page.split(BEGIN_OF_TABLE)
    _, after = rest.split(END_OF_TABLE)
    rows = [row(pair) for pair in cases if pair.reason]
    head = "| topic | configuration or request | NGINX Unit | howdah | reason |\n|---|---|---|---|---|\n"
    return before + BEGIN_OF_TABLE + head + "".join(rows) + END_OF_TABLE + after


def row(pair: Pair) -> str:
    unit, howdah = pair.data["unit"], pair.expected
    cells = [pair.topic, pair.name, summary(pair, unit, howdah), summary(pair, howdah, unit), pair.reason or ""]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def summary(pair: Pair, answer: dict, other: dict) -> str:
    """The differences of an answer, in few words."""
    if answer["config"] != 200:
        is_enough = other["config"] == 200
        return "the configuration is rejected" if is_enough else f"the configuration is rejected with {answer['config']}"
    if other["config"] != 200:
        first = answer.get("responses", [None])[0]
        return f"accepted; answers {described(first, None)}" if first else "accepted"
    both = zip(pair.requests(), answer.get("responses", []), other.get("responses", []))
    parts = [f"{asked(request)}: {described(mine, theirs)}" for request, mine, theirs in both if mine != theirs]
    logs = zip(answer.get("log", []), other.get("log", []))
    return "; ".join(parts + [f"`{mine}`" for mine, theirs in logs if mine != theirs])


def asked(request: dict) -> str:
    line = request["raw"].splitlines()[0] if "raw" in request else request.get("request", "GET /")
    return f"`{line}`"


def described(response: dict | str, other: dict | str | None) -> str:
    if isinstance(response, str):
        return response
    if not isinstance(other, dict) or response["status"] != other["status"]:
        return str(response["status"])
    theirs = other.get("headers", [])
    headers = [f"`{name}: {value}`" for name, value in response.get("headers", []) if [name, value] not in theirs]
    body = [f"`{response['body']}`"] if response.get("body") != other.get("body") and response.get("body") else []
    mine = {name.lower() for name, _ in response.get("headers", [])}
    absent = [f"no `{name}`" for name, _ in theirs if name.lower() not in mine]
    return ", ".join(headers + body + absent)


def filled_in(value, place: dict[str, str]):
    """The value with `{NAME}` replaced in each text, keys too."""
    if isinstance(value, str):
        return re.sub(r"\{([a-z]+(?::\w+)?)\}", lambda match: place.get(match[1], match[0]), value)
    if isinstance(value, list):
        return [filled_in(element, place) for element in value]
    if isinstance(value, dict):
        return {filled_in(key, place): filled_in(element, place) for key, element in value.items()}
    return value


def masked(text: str, place: dict[str, str]) -> str:
    """The text with what differs from run to run replaced by its name."""
    for name, value in place.items():
        text = text.replace(value if name != "port" else ":" + value, "{" + name + "}")
    text = re.sub(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}", "{time}", text)
    text = re.sub(r"\b[0-9a-f]{32}\b", "{id}", text)
    text = re.sub(r"\bPHP/[0-9.]+", "PHP/{version}", text)
    return re.sub(r"\b(Unit|howdah)(/[0-9.]+)?", lambda match: "{server}" + ("/{version}" if match[2] else ""), text)


def play_request(request: dict, place: dict[str, str]) -> dict | str:
    """Sends a request on a connection of its own; the response, or `closed`."""
    address, port = place["listen"].rpartition(":")[::2]
    with Connection((address, int(port))) as connection:
        try:
            if raw := request.get("raw"):
                connection.send(filled_in(raw, place).encode("latin-1"))
                if request.get("leaves"):
                    return "left"
                response = connection.response(raw.split(" ")[0])
            else:
                method, _, target = request.get("request", "GET /").partition(" ")
                headers = [tuple(header) for header in request.get("headers", [])]
                if not any(name.lower() == "host" for name, _ in headers):
                    headers.insert(0, ("Host", "localhost"))
                target = filled_in(target, place) + "x" * request.get("padded", 0)
                response = connection.request(method, target, headers, request.get("body"))
        except ClosedWithoutResponse:
            return "closed"
        except ProtocolError:
            return "broken off"
        except ConnectionResetError:
            return "reset"
    answer: dict = {"status": response.status}
    # Each server has its own pages for errors.
    ignored = NOT_COMPARED | ({"content-type"} if response.status >= 400 else set())
    if headers := [[name, masked(value, place)] for name, value in response.headers if name.lower() not in ignored]:
        answer["headers"] = sorted(headers, key=lambda header: header[0].lower())
    if response.body and response.status < 400:
        answer["body"] = "compressed" if response.all("content-encoding") else masked(response.text, place)
    return answer


def make_files(folder: Path, files: dict, place: dict[str, str]) -> None:
    """Makes the folder with exactly these files: a text, `{"link": target}`, `{"folder": true}`, with `mode`."""
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    folder.chmod(0o777)
    for name, content in files.items():
        content = {"text": content} if isinstance(content, str) else content
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if "link" in content:
            path.symlink_to(filled_in(content["link"], place))
            continue
        if content.get("folder"):
            path.mkdir(exist_ok=True)
        else:
            path.write_text(filled_in(content["text"], place))
        path.chmod(int(content.get("mode", "755"), 8))


def namespaces() -> dict[str, str]:
    """The namespaces of this process, as `ns:KIND`."""
    return {f"ns:{kind}": os.readlink(f"/proc/self/ns/{kind}") for kind in ("cgroup", "mnt", "net", "pid", "user", "uts")}


def upload_certificate(server: Server, name: str, folder: Path) -> None:
    """Makes a certificate with this name, unless the server has one."""
    if name in server.edit("GET", "/certificates").json():
        return
    files = ("-keyout", folder / "key.pem", "-out", folder / "certificate.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={name}.example", *files]
    subprocess.run(command, check=True, capture_output=True)
    bundle = (folder / "certificate.pem").read_bytes() + (folder / "key.pem").read_bytes()
    assert server.edit("PUT", f"/certificates/{name}", bundle).status == 200


@contextlib.contextmanager
def upstream(answer: str) -> Iterator[str]:
    """A server that reads a head, sends these bytes and closes; its address."""

    def send(visit: Visit) -> None:
        if request := visit.head():
            target = (request.line.split(" ") + [""])[1]
            visit.send(answer.replace("{target}", target).encode("latin-1"))

    with Upstream(send) as server:
        yield server.address
