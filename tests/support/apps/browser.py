"""A small browser: keep-alive, cookies, redirects, forms, uploads.

Every response is a Page, including 4xx and 5xx; only a broken connection raises.
"""

import html
import http.cookiejar
import json
import re
import secrets
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from email.message import Message
from html.parser import HTMLParser

from support.http.client import ClosedWithoutResponse, Connection, Response

TIMEOUT_SECONDS = 120
REDIRECTS = (301, 302, 303, 307, 308)


@dataclass
class Upload:
    name: str
    content: bytes
    type: str = "application/octet-stream"


@dataclass
class Form:
    action: str
    method: str
    id: str
    name: str
    # The fields that a browser sends for the unchanged form, without buttons.
    fields: list[tuple[str, str]] = field(default_factory=list)
    buttons: list[tuple[str, str]] = field(default_factory=list)

    def __getitem__(self, name: str) -> str:
        return dict(self.fields)[name]

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self.fields)


@dataclass
class Page:
    url: str
    status: int
    headers: Message
    body: bytes
    # Status codes of the redirects that led here.
    redirects: list[int] = field(default_factory=list)

    def info(self) -> Message:
        """The headers, for CookieJar."""
        return self.headers

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def path(self) -> str:
        return urllib.parse.urlsplit(self.url).path

    @property
    def content_type(self) -> str:
        return self.headers.get_content_type()

    @property
    def title(self) -> str:
        match = re.search(r"<title[^>]*>(.*?)</title>", self.text, re.S)
        return html.unescape(match[1]).strip() if match else ""

    @property
    def forms(self) -> list[Form]:
        parser = _FormParser()
        parser.feed(self.text)
        return parser.forms

    def form(self, id: str = None, *, containing: str = None, action: str = None) -> Form:
        """The first form with this id (or name), this field, or this piece of its action."""
        for form in self.forms:
            if id is not None and id not in (form.id, form.name):
                continue
            if containing is not None and containing not in form:
                continue
            if action is not None and action not in form.action:
                continue
            return form
        raise AssertionError(
            f"no form {id or containing or action!r} in {self.describe()}; "
            f"forms: {[(f.id, f.name, f.action, [k for k, _ in f.fields]) for f in self.forms]}"
        )

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            raise AssertionError(f"not JSON: {self.describe()}") from None

    def find(self, pattern: str) -> str:
        """The first group of the first match."""
        match = re.search(pattern, self.text, re.S)
        assert match, f"{pattern!r} is not in {self.describe()}"
        return html.unescape(match[1])

    def links(self, pattern: str) -> list[str]:
        """Absolute addresses of the page's assets and links whose attribute matches the pattern."""
        found = re.findall(r"""(?:href|src)=["']([^"']+)["']""", self.text)
        found = (urllib.parse.urljoin(self.url, html.unescape(link)) for link in found)
        return list(dict.fromkeys(link for link in found if re.search(pattern, link)))

    def ok(self) -> "Page":
        assert self.status == 200, self.describe()
        for trace in ("Fatal error</b>", "PHP Fatal error", "Uncaught Error", "Warning</b>:"):
            assert trace not in self.text, self.describe()
        return self

    def describe(self) -> str:
        text = re.sub(r"<(script|style)\b.*?</\1>", "", self.text, flags=re.S)
        text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))
        return f"{self.status} {self.url} ({len(self.body)} bytes, {self.title!r}): {text[:1500]}"


class Browser:
    def __init__(self, base: str):
        self.base = base
        self.cookies = http.cookiejar.CookieJar()
        host = urllib.parse.urlsplit(base)
        self._address = (host.hostname, host.port)
        self._connection: Connection | None = None

    def cookie(self, name: str) -> str | None:
        return next((cookie.value for cookie in self.cookies if cookie.name == name), None)

    def get(self, url: str = "/", **headers: str) -> Page:
        return self.request("GET", url, headers=headers)

    def post(self, url: str, fields=None, files: dict[str, Upload] = None, **headers: str) -> Page:
        pairs = list(fields.items()) if isinstance(fields, dict) else list(fields or [])
        if files is None:
            body = urllib.parse.urlencode(pairs).encode()
            type = "application/x-www-form-urlencoded"
        else:
            body, type = _multipart(pairs, files)
        return self.request("POST", url, body, {"Content-Type": type, **headers})

    def post_json(self, url: str, value, **headers: str) -> Page:
        body = json.dumps(value).encode()
        return self.request("POST", url, body, {"Content-Type": "application/json", **headers})

    def submit(self, page: Page, form: Form, fields: dict[str, str] = None, *,
               button: str = None, files: dict[str, Upload] = None) -> Page:
        """Fills in the fields and presses the button (by its name; without one, none is sent)."""
        fields = dict(fields or {})
        pairs = [(key, value) for key, value in form.fields if key not in fields]
        pairs += fields.items()
        if button is not None:
            values = dict(form.buttons)
            assert button in values, f"no button {button!r}, but {values} in {page.describe()}"
            pairs.append((button, values[button]))
        url = urllib.parse.urljoin(page.url, form.action)
        if form.method == "get":
            return self.get(url.split("?")[0] + "?" + urllib.parse.urlencode(pairs))
        return self.post(url, pairs, files, Referer=page.url)

    def request(self, method: str, url: str, body: bytes = None, headers: dict = None) -> Page:
        url = urllib.parse.urljoin(self.base, url).split("#")[0]
        headers = {key.replace("_", "-"): value for key, value in (headers or {}).items()}
        redirects = []
        while True:
            page = self._request(method, url, body, headers)
            page.redirects = list(redirects)
            location = page.headers["Location"]
            if page.status not in REDIRECTS or not location:
                return page
            redirects.append(page.status)
            assert len(redirects) <= 10, f"redirected in circles: {page.describe()}, {location}"
            url = urllib.parse.urljoin(url, location).split("#")[0]
            assert url.startswith(self.base), f"redirected away: {page.describe()}, {location}"
            if page.status not in (307, 308) and method != "HEAD":
                method, body = "GET", None
                headers = {key: value for key, value in headers.items() if key != "Content-Type"}

    def _request(self, method: str, url: str, body: bytes | None, headers: dict) -> Page:
        target = urllib.parse.urlsplit(url)._replace(scheme="", netloc="").geturl() or "/"
        target = urllib.parse.quote(target, safe="%/?:@!$&'()*+,;=-._~[]|")
        # The jar accepts only urllib's requests.
        request = urllib.request.Request(url, method=method)
        self.cookies.add_cookie_header(request)
        headers = {"User-Agent": "Mozilla/5.0 (howdah tests)", "Accept": "*/*",
                   **dict(request.header_items()), **headers}
        response = self._exchange(method, target, headers, body)
        page = Page(url, response.status, Message(), response.body)
        for name, value in response.headers:
            page.headers[name] = value
        self.cookies.extract_cookies(page, request)
        return page

    def _exchange(self, method: str, target: str, headers: dict, body: bytes | None) -> Response:
        """Sends a request over the open connection, and over a new one if the server has closed that meanwhile."""
        if self._connection:
            try:
                return self._exchange_over(self._connection, method, target, headers, body)
            except (BrokenPipeError, ConnectionResetError, ClosedWithoutResponse):
                # A server may close an idle connection at any time; a browser then tries again.
                self._connection.close()
        self._connection = Connection(self._address, TIMEOUT_SECONDS)
        return self._exchange_over(self._connection, method, target, headers, body)

    def _exchange_over(self, connection: Connection, *request) -> Response:
        response = connection.request(*request)
        if response.header("Connection") == "close":
            connection.close()
            self._connection = None
        return response


class _FormParser(HTMLParser):
    def __init__(self):
        super().__init__()
        self.forms: list[Form] = []
        self._form: Form | None = None
        self._select: str | None = None
        self._options: list[tuple[str | None, bool]] = []
        self._textarea: str | None = None
        self._text: list[str] = []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "form":
            self._form = Form(attrs.get("action") or "", (attrs.get("method") or "get").lower(),
                              attrs.get("id") or "", attrs.get("name") or "")
            self.forms.append(self._form)
            return
        if tag == "option" and self._select is not None:
            self._options.append((attrs.get("value"), "selected" in attrs))
            return
        name = attrs.get("name")
        if self._form is None or not name or "disabled" in attrs:
            return
        value = attrs.get("value")
        if tag == "input":
            type = (attrs.get("type") or "text").lower()
            if type in ("submit", "image"):
                self._form.buttons.append((name, value or ""))
            elif type in ("checkbox", "radio"):
                if "checked" in attrs:
                    self._form.fields.append((name, "on" if value is None else value))
            elif type not in ("button", "reset", "file"):
                self._form.fields.append((name, value or ""))
        elif tag == "button":
            self._form.buttons.append((name, value or ""))
        elif tag == "select":
            self._select, self._options = name, []
        elif tag == "textarea":
            self._textarea, self._text = name, []

    def handle_data(self, data):
        if self._textarea is not None:
            self._text.append(data)

    def handle_endtag(self, tag):
        if self._form is None:
            return
        if tag == "form":
            self._form = None
        elif tag == "select" and self._select is not None:
            chosen = [value for value, selected in self._options if selected]
            chosen = chosen or [value for value, _ in self._options[:1]]
            self._form.fields += [(self._select, value or "") for value in chosen]
            self._select = None
        elif tag == "textarea" and self._textarea is not None:
            text = "".join(self._text)
            self._form.fields.append((self._textarea, text.removeprefix("\n")))
            self._textarea = None


def _multipart(fields: list[tuple[str, str]], files: dict[str, Upload]) -> tuple[bytes, str]:
    boundary = "howdah" + secrets.token_hex(12)
    parts = []
    for name, value in fields:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
        parts.append(head.encode() + str(value).encode() + b"\r\n")
    for name, file in files.items():
        head = (f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; '
                f'filename="{file.name}"\r\nContent-Type: {file.type}\r\n\r\n')
        parts.append(head.encode() + file.content + b"\r\n")
    parts.append(f"--{boundary}--\r\n".encode())
    return b"".join(parts), f"multipart/form-data; boundary={boundary}"
