"""A client of HTTP/2 that sends any frames, right or wrong, and reads what comes back.

hyperframe makes and parses the frames, hpack the heads; nothing here decides what may be sent.
"""

from __future__ import annotations

import select
import socket
import ssl
from dataclasses import dataclass, field

from hpack import Decoder, Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from support.waiting import PATIENCE

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ERROR, PROTOCOL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 7, 8, 11


@dataclass
class Stream:
    """The response on a stream, as far as it has come."""

    heads: list[list[tuple[str, str]]] = field(default_factory=list)
    body: bytes = b""
    ended: bool = False
    granted: int = 0
    """How many more bytes than its initial window the server takes."""
    reset: int | None = None
    """The code of RST_STREAM."""

    @property
    def interim(self) -> list[int]:
        return [int(dict(head)[":status"]) for head in self.heads if dict(head)[":status"].startswith("1")]

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.heads[-1]) if self.heads else {}

    @property
    def status(self) -> int:
        return int(self.headers[":status"])

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def is_over(self) -> bool:
        return self.ended or self.reset is not None


class Http2Connection:
    """One connection. `window`: the initial window of each response; `grants`: whether windows grow as bytes come."""

    def __init__(self, address, context: ssl.SSLContext | None = None, name="x", window: int | None = None, grants=True):
        self.socket = socket.create_connection(address, PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context:
            context.set_alpn_protocols(["h2", "http/1.1"])
            self.socket = context.wrap_socket(self.socket, server_hostname=name)
            assert self.socket.selected_alpn_protocol() == "h2"
        self.scheme = "https" if context else "http"
        self.name = name
        self.encoder, self.decoder = Encoder(), Decoder()
        self.buffer = b""
        self.streams: dict[int, Stream] = {}
        self.next_stream = 1
        self.settings: dict[int, int] = {}
        self.goaways: list[int] = []
        """The error codes of GOAWAY."""
        self.pongs = 0
        self.window = 65535
        """How many bytes of bodies the server takes on all streams."""
        self.closed = False
        self.grants = grants
        settings = {} if window is None else {SettingsFrame.INITIAL_WINDOW_SIZE: window}
        self.send_raw(PREFACE + SettingsFrame(0, settings=settings).serialize())

    def __enter__(self) -> Http2Connection:
        return self

    def __exit__(self, *_) -> None:
        self.socket.close()

    # --- Sending

    def send_raw(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            pass  # A GOAWAY may still be there to read.

    def send(self, *frames: Frame) -> None:
        self.send_raw(b"".join(frame.serialize() for frame in frames))

    def head(self, method="GET", path="/", headers=(), **pseudo) -> list[tuple[str, str]]:
        """The fields of a request; `pseudo` replaces pseudo headers, None leaves one out."""
        fields = {"method": method, "scheme": self.scheme, "authority": self.name, "path": path} | pseudo
        return [(f":{name}", value) for name, value in fields.items() if value is not None] + list(headers)

    def request_frames(self, fields, ends=True, stream: int | None = None) -> list[Frame]:
        """The frames of a head, for the next stream."""
        if stream is None:
            stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.streams.setdefault(stream, Stream())
        flags = ["END_HEADERS"] + (["END_STREAM"] if ends else [])
        return [HeadersFrame(stream, data=self.encoder.encode(fields), flags=flags)]

    def begin(self, method="GET", path="/", headers=(), body: bytes | None = None, ends=True, **pseudo) -> int:
        """Sends a request, as a stream whose number it returns. A body is sent at once, whatever the windows are."""
        frames = self.request_frames(self.head(method, path, headers, **pseudo), ends and body is None)
        stream = frames[0].stream_id
        for at in range(0, len(body or b""), 16384):
            frames.append(DataFrame(stream, data=body[at : at + 16384]))
        if body is not None and ends:
            frames.append(DataFrame(stream, flags=["END_STREAM"]))
        self.send(*frames)
        return stream

    def begin_in_pieces(self, fields) -> int:
        """Sends a head of any size, in as many frames as it needs."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.streams[stream] = Stream()
        block = self.encoder.encode(fields)
        pieces = [block[at : at + 16000] for at in range(0, len(block), 16000)]
        frames = [HeadersFrame(stream, data=pieces[0], flags=["END_STREAM"])]
        frames += [ContinuationFrame(stream, data=piece) for piece in pieces[1:]]
        frames[-1].flags.add("END_HEADERS")
        self.send(*frames)
        return stream

    def request(self, method="GET", path="/", headers=(), body: bytes | None = None, **pseudo) -> Stream:
        """Sends a request and reads until its stream is over, or the connection is closed."""
        return self.response(self.begin(method, path, headers, body, **pseudo))

    def upload(self, stream: int, body: bytes, ends=False) -> None:
        """Sends a part of a body as the windows allow, until a response comes."""
        response = self.streams[stream]
        self.read_until(lambda: self.settings)
        while body and not self.closed and not response.heads:
            room = min(self.window, self.settings.get(SettingsFrame.INITIAL_WINDOW_SIZE, 65535) + response.granted, 16384)
            if room <= 0:
                self.read_frame()
                continue
            piece, body = body[:room], body[room:]
            self.window -= len(piece)
            response.granted -= len(piece)
            self.send(DataFrame(stream, data=piece, flags=["END_STREAM"] if ends and not body else []))

    # --- Receiving

    def response(self, stream: int) -> Stream:
        self.read_until(lambda: self.streams[stream].is_over)
        return self.streams[stream]

    def read_until(self, condition) -> None:
        """Reads frames until the condition is true, or the connection is closed."""
        while not self.closed and not condition():
            self.read_frame()

    def read_to_end(self) -> None:
        self.read_until(lambda: False)

    def read_what_is_there(self) -> None:
        """Reads the frames that have come."""
        while not self.closed and (self.buffer or select.select([self.socket], [], [], 0)[0]):
            self.read_frame()

    def read_frame(self) -> Frame | None:
        header = self._exactly(9)
        if not header:
            return None
        frame, length = Frame.parse_frame_header(memoryview(header))
        frame.parse_body(memoryview(self._exactly(length)))
        self._received(frame)
        return frame

    def _received(self, frame: Frame) -> None:
        stream = self.streams.setdefault(frame.stream_id, Stream())
        match frame:
            case SettingsFrame() if "ACK" not in frame.flags:
                self.settings.update(frame.settings)
                self.send(SettingsFrame(0, flags=["ACK"]))
            case PingFrame() if "ACK" not in frame.flags:
                self.send(PingFrame(0, opaque_data=frame.opaque_data, flags=["ACK"]))
            case PingFrame():
                self.pongs += 1
            case GoAwayFrame():
                self.goaways.append(frame.error_code)
            case HeadersFrame():
                assert "END_HEADERS" in frame.flags, "a head in several frames"
                stream.heads.append([(str(name), str(value)) for name, value in self.decoder.decode(frame.data)])
            case DataFrame():
                stream.body += frame.data
                if self.grants and frame.flow_controlled_length:
                    grown = frame.flow_controlled_length
                    self.send(WindowUpdateFrame(0, grown), WindowUpdateFrame(frame.stream_id, grown))
            case WindowUpdateFrame() if frame.stream_id == 0:
                self.window += frame.window_increment
            case WindowUpdateFrame():
                stream.granted += frame.window_increment
            case RstStreamFrame():
                stream.reset = frame.error_code
        if "END_STREAM" in frame.flags:
            stream.ended = True

    def _exactly(self, size: int) -> bytes:
        while len(self.buffer) < size and not self.closed:
            try:
                piece = self.socket.recv(1 << 16)
            except (ConnectionResetError, ssl.SSLEOFError):
                piece = b""
            self.buffer += piece
            self.closed = not piece
        if self.closed:
            return b""
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data
