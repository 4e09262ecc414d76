"""Heads of HTTP/2 and HTTP/3 that could become something else in HTTP/1.1: each is one request there, or none.

A case is the pseudo headers, the headers, and the request line of an upstream; NONE if it gets no request.
"""

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
LINES = "\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
NONE = None


def target(path: str) -> str:
    return f"GET {path} HTTP/1.1"


PATHS = {
    "a space": ({"path": "/a b"}, [], NONE),
    "a space and a version": ({"path": "/a HTTP/1.1"}, [], NONE),
    "a tab": ({"path": "/a\tb"}, [], NONE),
    "lines": ({"path": "/a HTTP/1.1" + LINES}, [], NONE),
    "CR": ({"path": "/a\rb"}, [], NONE),
    "LF": ({"path": "/a\nb"}, [], NONE),
    "NUL": ({"path": "/a\0b"}, [], NONE),
    "DEL": ({"path": "/a\x7fb"}, [], NONE),
    "lines in the query": ({"path": "/a?b" + LINES}, [], NONE),
    "lines that are encoded": ({"path": "/a%0d%0aGET%20/smuggled%20HTTP/1.1%0d%0a"}, [], target("/a%0d%0aGET%20/smuggled%20HTTP/1.1%0d%0a")),
    "encoded lines in the query": ({"path": "/a?b=%0d%0ac:%20d"}, [], target("/a?b=%0d%0ac:%20d")),
    "a fragment": ({"path": "/a#b"}, [], target("/a")),
    "a fragment behind a query": ({"path": "/a?b#c"}, [], target("/a?b")),
    "an absolute form": ({"path": "http://y/a"}, [], NONE),
    "two slashes": ({"path": "//y/a"}, [], target("//y/a")),
    "no slash": ({"path": "a"}, [], NONE),
    "a colon": ({"path": ":80/a"}, [], NONE),
    "an asterisk": ({"path": "*"}, [], NONE),
    "an asterisk with OPTIONS": ({"method": "OPTIONS", "path": "*"}, [], "OPTIONS * HTTP/1.1"),
    "an encoded slash": ({"path": "/a%2fb"}, [], target("/a%2fb")),
    "folders above": ({"path": "/../a"}, [], NONE),
    "encoded folders above": ({"path": "/%2e%2e/a"}, [], NONE),
    "a backslash": ({"path": "/a\\b"}, [], (NONE, target("/a\\b"), target("/a%5Cb"))),
    "letters that are not ASCII": ({"path": "/ä"}, [], (NONE, target("/%C3%A4"), target("/Ã¤"))),
}
METHODS = {
    "a method with lines": ({"method": "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\nGET"}, [], NONE),
    "a method with a space": ({"method": "GET /smuggled"}, [], NONE),
    "an empty method": ({"method": ""}, [], NONE),
    "CONNECT": ({"method": "CONNECT", "scheme": None, "path": None}, [], NONE),
    "TRACE": ({"method": "TRACE"}, [], NONE),
    "PRI": ({"method": "PRI", "path": "*"}, [], NONE),
    "an unknown method": ({"method": "BREW"}, [], "BREW / HTTP/1.1"),
}
HOSTS = {
    "lines in :authority": ({"authority": "x" + LINES}, [], NONE),
    "a space in :authority": ({"authority": "x y"}, [], NONE),
    "a path in :authority": ({"authority": "x/smuggled"}, [], NONE),
    "a user in :authority": ({"authority": "y@x"}, [], NONE),
    "lines in :scheme": ({"scheme": "http://y/smuggled HTTP/1.1\r\nx: y\r\n\r\nhttp"}, [], NONE),
    "a host in :scheme": ({"scheme": "http://y/a?"}, [], NONE),
    "another Host": ({}, [("host", "y")], NONE),
    "an equal Host": ({}, [("host", "X")], target("/")),
    "two Hosts": ({}, [("host", "x"), ("host", "x")], NONE),
}
HEADERS = {
    "lines in a value": ({}, [("a", "b" + LINES)], NONE),
    "LF in a value": ({}, [("a", "b\nc: d")], NONE),
    "CR in a value": ({}, [("a", "b\rc: d")], NONE),
    "NUL in a value": ({}, [("a", "b\0")], NONE),
    "lines in a name": ({}, [("a: b\r\nc", "d")], NONE),
    "a colon in a name": ({}, [("content-length: 0\r\n\r\nx", "d")], NONE),
    "a space behind a name": ({}, [("content-length ", "3")], NONE),
    "capitals in a name": ({}, [("Transfer-Encoding", "chunked")], NONE),
    "an empty name": ({}, [("", "b")], NONE),
    "a pseudo header's name": ({}, [(":path", "/smuggled")], NONE),
    "Transfer-Encoding": ({}, [("transfer-encoding", "chunked")], NONE),
    "Transfer-Encoding: identity": ({}, [("transfer-encoding", "identity")], NONE),
    "Connection": ({}, [("connection", "host")], NONE),
    "Keep-Alive": ({}, [("keep-alive", "timeout=5")], NONE),
    "Proxy-Connection": ({}, [("proxy-connection", "keep-alive")], NONE),
    "Upgrade": ({}, [("upgrade", "websocket")], NONE),
    "HTTP2-Settings": ({}, [("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA")], target("/")),
    "TE: gzip": ({}, [("te", "gzip")], NONE),
    "TE: trailers": ({}, [("te", "trailers")], target("/")),
    "Trailer": ({}, [("trailer", "content-length")], target("/")),
    "Proxy": ({}, [("proxy", "http://y/")], target("/")),
    "Expect": ({}, [("expect", "100-continue")], target("/")),
    "Content_Length": ({}, [("content_length", "3")], target("/")),
    "Transfer_Encoding": ({}, [("transfer_encoding", "chunked")], target("/")),
    "cookies in parts": ({}, [("cookie", "a=1"), ("cookie", "b=2; c=3")], target("/")),
}
# As a POST with a body that looks like a request.
LENGTHS = {
    "no length": ([], True),
    "the length": ([("content-length", str(len(SMUGGLED)))], True),
    "a length with zeros": ([("content-length", f"000{len(SMUGGLED)}")], (True, False)),
    "a length of 0": ([("content-length", "0")], False),
    "a length that is too small": ([("content-length", "1")], False),
    "a length that is too large": ([("content-length", "1000")], False),
    "a length with a sign": ([("content-length", f"+{len(SMUGGLED)}")], False),
    "a negative length": ([("content-length", "-1")], False),
    "a length with a fraction": ([("content-length", f"{len(SMUGGLED)}.0")], False),
    "a hexadecimal length": ([("content-length", f"0x{len(SMUGGLED):x}")], False),
    "a length with a letter": ([("content-length", f"{len(SMUGGLED)}a")], False),
    "an empty length": ([("content-length", "")], False),
    "a list": ([("content-length", f"{len(SMUGGLED)}, {len(SMUGGLED)}")], False),
    "two equal lengths": ([("content-length", str(len(SMUGGLED)))] * 2, False),
    "two lengths": ([("content-length", "0"), ("content-length", str(len(SMUGGLED)))], False),
    "a length beyond 64 bits": ([("content-length", str((1 << 64) + len(SMUGGLED)))], False),
    "a length and a coding": ([("content-length", "0"), ("transfer-encoding", "chunked")], False),
    "a coding": ([("transfer-encoding", "chunked")], False),
    "a length with a space": ([("content-length", f" {len(SMUGGLED)} ")], (True, False)),
    "Expect": ([("expect", "100-continue")], True),
}  # fmt: skip
TABLES = {"paths": PATHS, "methods": METHODS, "hosts": HOSTS, "headers": HEADERS}
