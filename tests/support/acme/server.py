"""The authority's server: nonces, accounts, orders and challenges, each checked, and failures on demand."""

from __future__ import annotations

import datetime
import itertools
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from support.acme import signatures, validation
from support.acme.issuer import Issuer

PREFIX = "urn:ietf:params:acme:error:"


class Problem(Exception):
    def __init__(self, kind: str, detail: str, status: int = 403, headers=()):
        super().__init__(kind, detail)
        self.kind, self.detail, self.status, self.headers = kind, detail, status, dict(headers)


class Authority:
    """An authority. Its behaviour can be changed while it runs."""

    def __init__(self, folder: Path):
        self.issuer = Issuer(folder)
        self.zone = folder / "zone"
        self.zone.mkdir()
        self.zone.chmod(0o777)
        # Where it looks for the answers: the ports in place of 80 and 443.
        self.http_port = self.tls_port = 0
        # Failures on demand.
        self.bad_nonces = 0
        self.rate_limits: list[int] = []
        self.refused: dict[str, str] = {}
        self.is_down = False
        self.lies = False
        self.token = "token"
        self.chain = ""
        self.is_talkative = False
        # Members of the directory in place of its own.
        self.members: dict[str, str] = {}
        self.delay = 0.0
        self.external_key: bytes | None = None
        self.offered = ("http-01", "tls-alpn-01", "dns-01")
        self.renews_at_once = False
        # The requests so far.
        self.orders: list[dict] = []
        self.accounts: dict[str, dict] = {}
        self.contacts: list[list[str]] = []
        self.issued: list[str] = []
        self.replaced: list[str] = []
        self.requests: list[tuple[float, str]] = []
        self._nonces: set[str] = set()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._chains: dict[int, str] = {}
        self.port = 0
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> "Authority":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def start(self) -> None:
        authority = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                authority.answer(self)

            do_HEAD = do_POST = do_GET

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def directory(self) -> str:
        return self.url("directory")

    def url(self, *path) -> str:
        return "/".join([f"http://127.0.0.1:{self.port}", *map(str, path)])

    # Requests

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        kind, *rest = handler.path.strip("/").split("/")
        with self._lock:
            self.requests.append((time.monotonic(), kind))
        time.sleep(self.delay)
        headers = {}
        try:
            if self.is_down:
                status, content = 503, b"<html>down</html>"
                headers["Content-Type"] = "text/html"
            else:
                status, content, headers = self._dispatch(kind, rest, handler, body)
        except Problem as problem:
            problem_text = {"type": PREFIX + problem.kind, "detail": problem.detail, "status": problem.status}
            status, content = problem.status, problem_text
            headers = {"Content-Type": "application/problem+json; charset=utf-8"} | problem.headers
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
            headers.setdefault("Content-Type", "application/json")
        handler.send_response(status)
        for name, value in ({"Replay-Nonce": self._nonce()} | headers).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(content)

    def _dispatch(self, kind, rest, handler, body):
        if kind == "directory":
            names = {"newNonce": "nonce", "newAccount": "account", "newOrder": "new-order", "renewalInfo": "renewal"}
            return 200, {name: self.url(path) for name, path in names.items()} | self.members, {}
        if kind == "nonce":
            return 200, b"", {}
        if kind == "renewal":
            return self._renewal(rest[0])
        payload, account = self._signed(json.loads(body), handler)
        return getattr(self, "_" + kind.replace("-", "_"))(payload, account, *rest)

    def _signed(self, jws: dict, handler):
        """The content of a request, and its account; checks the nonce, the URL and the signature."""
        head = json.loads(signatures.decode(jws["protected"]))
        with self._lock:
            known = head.get("nonce") in self._nonces
            self._nonces.discard(head.get("nonce"))
            if known and self.bad_nonces:
                self.bad_nonces -= 1
                known = False
        if not known:
            raise Problem("badNonce", "unknown nonce", 400)
        if head["url"] != f"http://{handler.headers['Host']}{handler.path}" or head["alg"] != "ES256":
            raise Problem("malformed", "another URL", 400)
        account = None
        if "jwk" in head:
            key = head["jwk"]
        else:
            account = self.accounts.get(head["kid"])
            if account is None:
                raise Problem("accountDoesNotExist", "no such account", 400)
            key = account["key"]
        if not signatures.is_valid(jws, key):
            raise Problem("malformed", "wrong signature", 400)
        payload = json.loads(signatures.decode(jws["payload"])) if jws["payload"] else None
        return payload, account or {"key": key}

    def _account(self, payload, account):
        assert payload["termsOfServiceAgreed"] is True
        if self.external_key is not None:
            binding = payload.get("externalAccountBinding")
            if not binding:
                raise Problem("externalAccountRequired", "an external account is required")
            if not signatures.is_valid_hmac(binding, self.external_key):
                raise Problem("unauthorized", "the binding is not valid", 401)
            assert json.loads(signatures.decode(binding["payload"]))["x"] == account["key"]["x"]
        url = self.url("account", next(self._numbers))
        self.accounts[url] = account
        self.contacts.append(payload.get("contact", []))
        return 201, {"status": "valid"}, {"Location": url}

    def _new_order(self, payload, account):
        with self._lock:
            pause = self.rate_limits.pop(0) if self.rate_limits else None
        if pause is not None:
            raise Problem("rateLimited", "too many certificates", 429, {"Retry-After": str(pause)})
        domain = payload["identifiers"][0]["value"]
        if domain in self.refused and self.refused[domain] in ("caa", "rejectedIdentifier"):
            raise Problem(self.refused[domain], "refused by policy")
        if "replaces" in payload:
            self.replaced.append(payload["replaces"])
        nonce = self._nonce()
        order = {"domain": domain, "status": "pending", "thumbprint": signatures.thumbprint(account["key"])}
        order |= {"replaces": payload.get("replaces"), "error": None, "kind": None}
        with self._lock:
            number = len(self.orders)
            self.orders.append(order | {"token": f"{self.token}-{number}-{nonce}"})
        return 201, self._state(number), {"Location": self.url("order", number)}

    def _state(self, number):
        order = self.orders[number]
        state = {"status": order["status"], "identifiers": [{"type": "dns", "value": order["domain"]}]}
        state |= {"authorizations": [self.url("authorization", number)], "finalize": self.url("finalize", number)}
        if order["status"] == "valid":
            state["certificate"] = self.url("certificate", number)
        if order["replaces"]:
            state["replaces"] = order["replaces"]
        return state

    def _order(self, _, __, number):
        return 200, self._state(int(number)), {}

    def _authorization(self, _, __, number):
        order = self.orders[int(number)]
        status = {"ready": "valid"}.get(order["status"], order["status"])
        domain, is_wildcard = order["domain"].removeprefix("*."), order["domain"].startswith("*.")
        offered = ["dns-01"] if is_wildcard else self.offered
        challenges = [self._challenge_of(int(number), kind) for kind in offered]
        content = {"identifier": {"type": "dns", "value": domain}, "status": status, "challenges": challenges}
        return 200, content | ({"wildcard": True} if is_wildcard else {}), {}

    def _challenge_of(self, number, kind):
        order = self.orders[number]
        challenge = {"type": kind, "url": self.url("challenge", number, kind), "token": order["token"], "status": "pending"}
        if order["error"] and order["kind"] == kind:
            challenge |= {"status": "invalid", "error": order["error"]}
        return challenge

    def _challenge(self, payload, _, number, kind):
        assert payload == {}
        order = self.orders[int(number)]
        order["kind"] = kind
        threading.Thread(target=self._validate, args=(order, kind), daemon=True).start()
        return 200, self._challenge_of(int(number), kind), {}

    def _validate(self, order, kind):
        domain, token = order["domain"], order["token"]
        authorization = f"{token}.{order['thumbprint']}"
        try:
            if domain in self.refused:
                raise validation.Failed(self.refused[domain], "refused on demand")
            if kind == "http-01":
                validation.http_01(self.http_port, domain, token, authorization)
            elif kind == "tls-alpn-01":
                validation.tls_alpn_01(self.tls_port, domain, authorization)
            else:
                validation.dns_01(self.zone, domain, authorization)
            order["status"] = "ready"
        except validation.Failed as failed:
            order["error"] = {"type": PREFIX + failed.kind, "detail": failed.detail, "status": 403}
            order["status"] = "invalid"

    def _finalize(self, payload, _, number):
        order = self.orders[int(number)]
        if order["status"] != "ready":
            raise Problem("orderNotReady", order["status"])
        csr = signatures.decode(payload["csr"])
        if self.issuer.names(csr) != [order["domain"]]:
            raise Problem("badCSR", "other names", 400)
        if self.lies:
            bundle = self.issuer.bundle("other.example", -0.01, 90)
            self._chains[int(number)] = bundle.split("-----BEGIN PRIVATE")[0]
        elif self.chain:
            self._chains[int(number)] = self.chain
        else:
            # More certificates than are needed.
            more = Path(self.issuer.root).read_text() * 12 if self.is_talkative else ""
            self._chains[int(number)] = self.issuer.sign(csr) + more
        order["status"] = "valid"
        self.issued.append(order["domain"])
        return 200, self._state(int(number)), {}

    def _certificate(self, _, __, number):
        return 200, self._chains[int(number)].encode(), {"Content-Type": "application/pem-certificate-chain"}

    def _renewal(self, identifier):
        now = datetime.datetime.now(datetime.timezone.utc)
        days = -1 if self.renews_at_once and identifier not in self.replaced and len(self.issued) == 1 else 50
        window = [(now + datetime.timedelta(days=days + more)).strftime("%Y-%m-%dT%H:%M:%SZ") for more in (0, 0.5)]
        content = {"suggestedWindow": {"start": window[0], "end": window[1]}}
        return 200, content, {"Retry-After": "21600"}

    def _nonce(self) -> str:
        with self._lock:
            nonce = f"nonce{next(self._numbers)}"
            self._nonces.add(nonce)
        return nonce
