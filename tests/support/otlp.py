"""A collector of OpenTelemetry (OTLP), over HTTP and over gRPC, and a decoder for what it receives.

By default it has code of its own for protocol buffers and gRPC, on Debian's python3-h2. With HOWDAH_TEST_OTLP=real it is
made of OpenTelemetry's own packages: `make otlp-tests` installs them from PyPI and runs the same tests.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

IS_REAL = os.environ.get("HOWDAH_TEST_OTLP") == "real"
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


@dataclass
class Span:
    trace: str
    id: str
    parent: str
    name: str
    kind: int
    begin: int
    end: int
    state: str
    attributes: dict
    status: int
    resource: dict
    events: list = field(default_factory=list)
    """Time, name and attributes of each."""

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / 1e9


@dataclass
class Point:
    """A number, or the count and buckets of a histogram."""

    name: str
    attributes: dict
    value: float
    buckets: list = field(default_factory=list)
    unit: str = ""


@dataclass
class Line:
    """A log record."""

    trace: str
    severity: str
    text: str
    attributes: dict
    resource: dict


class Collector:
    """A collector on a free port of 127.0.0.1. It can be stopped, and started again on the same port."""

    def __init__(self, protocol: str, certificate: tuple | None = None):
        self.protocol, self.certificate = protocol, certificate
        self.lock = threading.Lock()
        self.spans: list[Span] = []
        self.points: list[Point] = []
        self.lines: list[Line] = []
        self.headers: list[dict] = []
        self.status = None  # The failure to answer with: a status of HTTP or of gRPC.
        self.port = 0
        self.server = None
        self.start()

    def start(self) -> None:
        self.server = (RealGrpcServer if IS_REAL else GrpcServer)(self) if self.protocol == "grpc" else HttpServer(self)
        self.port = self.server.port

    def stop(self) -> None:
        if self.server:
            self.server.stop()
            self.server = None

    @property
    def settings(self) -> dict:
        scheme = "https" if self.certificate else "http"
        path = "/v1/traces" if self.protocol == "http" else ""
        host = "localhost" if self.certificate else "127.0.0.1"
        return {"endpoint": f"{scheme}://{host}:{self.port}{path}", "protocol": self.protocol}

    def take(self, path: str, headers: dict, body: bytes) -> None:
        decode = decode_real if IS_REAL else decode_own
        spans, points, lines = [], [], []
        if "logs" in path.lower():
            lines = (decode_real_lines if IS_REAL else decode_own_lines)(body)
        else:
            spans, points = decode(body, "trace" in path.lower())
        with self.lock:
            self.lines += lines
            self.headers.append(headers)
            self.spans += spans
            self.points += points

    def named(self, name: str) -> list[Span]:
        with self.lock:
            return [span for span in self.spans if span.name == name]

    def with_path(self, path: str) -> list[Span]:
        """The spans of requests with this path."""
        with self.lock:
            return [span for span in self.spans if span.attributes.get("url.path") == path]

    def trace(self, trace: str) -> dict[str, Span]:
        with self.lock:
            return {span.name: span for span in self.spans if span.trace == trace}

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_) -> None:
        self.stop()


def context_of(certificate: tuple | None, alpn: str):
    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.set_alpn_protocols([alpn])
    return context


class HttpServer:
    """Protocol buffers in a POST."""

    def __init__(self, collector: Collector):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_right = self.headers["Content-Type"] == "application/x-protobuf"
                status = collector.status or (200 if is_right and self.path.startswith("/v1/") else 404)
                if status == 200:
                    collector.take(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True
            connections: list = []

            def get_request(self):
                accepted = super().get_request()
                self.connections.append(accepted[0])
                return accepted

        self.server = Server(("127.0.0.1", collector.port), Handler)
        self.server.connections = []
        if context := context_of(collector.certificate, "http/1.1"):
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        close_all(self.server.connections)


def close_all(connections) -> None:
    for connection in connections:
        try:
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        except OSError:
            pass


class GrpcServer:
    """Calls with one message and one answer."""

    def __init__(self, collector: Collector):
        self.collector, self.connections = collector, []
        self.listener = socket.create_server(("127.0.0.1", collector.port))
        self.port = self.listener.getsockname()[1]
        self.context = context_of(collector.certificate, "h2")
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        import h2.config
        import h2.connection
        import h2.events

        try:
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
            http2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
            http2.initiate_connection()
            streams: dict[int, tuple[dict, bytearray]] = {}
            connection.sendall(http2.data_to_send())
            while data := connection.recv(65536):
                for event in http2.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        streams[event.stream_id] = (dict(event.headers), bytearray())
                    elif isinstance(event, h2.events.DataReceived):
                        streams[event.stream_id][1].extend(event.data)
                        http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, h2.events.StreamEnded):
                        self.answer(http2, event.stream_id, *streams.pop(event.stream_id))
                connection.sendall(http2.data_to_send())
        except OSError:
            pass

    def answer(self, http2, stream: int, headers: dict, body: bytearray) -> None:
        code = self.collector.status or 0
        is_right = headers["content-type"] == "application/grpc" and headers["te"] == "trailers"
        if not is_right or headers[":path"] not in (TRACES, METRICS, LOGS):
            code = code or 12
        head = [(":status", "200"), ("content-type", "application/grpc")]
        if code:
            http2.send_headers(stream, [*head, ("grpc-status", str(code)), ("grpc-message", "not now")], end_stream=True)
            return
        is_compressed, length = struct.unpack(">BI", body[:5])
        assert not is_compressed and length == len(body) - 5
        self.collector.take(headers[":path"], headers, bytes(body[5:]))
        http2.send_headers(stream, head)
        http2.send_data(stream, b"\0" * 5)
        http2.send_headers(stream, [("grpc-status", "0")], end_stream=True)

    def stop(self) -> None:
        # Closing alone does not wake the thread that accepts.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        close_all(self.connections)


class RealGrpcServer:
    """grpcio and the services of opentelemetry-proto."""

    def __init__(self, collector: Collector):
        from concurrent.futures import ThreadPoolExecutor

        import grpc
        from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
        from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

        codes = {code.value[0]: code for code in grpc.StatusCode}

        def export(path, response):
            def Export(_, request, context):
                if collector.status:
                    context.abort(codes[collector.status], "not now")
                collector.take(path, dict(context.invocation_metadata()), request.SerializeToString())
                return response()

            return Export

        traces = type("Traces", (trace_grpc.TraceServiceServicer,), {"Export": export(TRACES, trace.ExportTraceServiceResponse)})
        numbers = type(
            "Numbers", (metrics_grpc.MetricsServiceServicer,), {"Export": export(METRICS, metrics.ExportMetricsServiceResponse)}
        )
        lines = type("Logs", (logs_grpc.LogsServiceServicer,), {"Export": export(LOGS, logs.ExportLogsServiceResponse)})
        self.server = grpc.server(ThreadPoolExecutor(4))
        trace_grpc.add_TraceServiceServicer_to_server(traces(), self.server)
        metrics_grpc.add_MetricsServiceServicer_to_server(numbers(), self.server)
        logs_grpc.add_LogsServiceServicer_to_server(lines(), self.server)
        address = f"127.0.0.1:{collector.port}"
        if collector.certificate:
            chain, key = (open(path, "rb").read() for path in collector.certificate)
            self.port = self.server.add_secure_port(address, grpc.ssl_server_credentials([(key, chain)]))
        else:
            self.port = self.server.add_insecure_port(address)
        self.server.start()

    def stop(self) -> None:
        self.server.stop(None).wait()


# --- Decoding


def decode_real(body: bytes, is_trace: bool) -> tuple[list[Span], list[Point]]:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    def attributes(pairs) -> dict:
        return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}

    spans, points = [], []
    if is_trace:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            common = attributes(resource.resource.attributes)
            for scope in resource.scope_spans:
                for s in scope.spans:
                    ids = (s.trace_id.hex(), s.span_id.hex(), s.parent_span_id.hex())
                    times = (s.start_time_unix_nano, s.end_time_unix_nano)
                    events = [(e.time_unix_nano, e.name, attributes(e.attributes)) for e in s.events]
                    rest = (s.trace_state, attributes(s.attributes), s.status.code, common, events)
                    spans.append(Span(*ids, s.name, s.kind, *times, *rest))
        return spans, points
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                data = getattr(metric, metric.WhichOneof("data"))
                for point in data.data_points:
                    labels = attributes(point.attributes)
                    if metric.HasField("histogram"):
                        points.append(Point(metric.name, labels, point.count, list(point.bucket_counts), metric.unit))
                    else:
                        points.append(Point(metric.name, labels, getattr(point, point.WhichOneof("value")), [], metric.unit))
    return spans, points


def decode_real_lines(body: bytes) -> list[Line]:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    def attributes(pairs) -> dict:
        return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}

    lines = []
    for resource in ExportLogsServiceRequest.FromString(body).resource_logs:
        common = attributes(resource.resource.attributes)
        for scope in resource.scope_logs:
            for record in scope.log_records:
                assert record.time_unix_nano and record.observed_time_unix_nano
                found = (record.severity_text, record.body.string_value, attributes(record.attributes))
                lines.append(Line(record.trace_id.hex(), *found, common))
    return lines


def fields(body: bytes) -> dict[int, list]:
    """The fields of a message: integers, and the bytes of all others."""
    found, at = {}, 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(body):
        key = varint()
        match key & 7:
            case 0:
                value = varint()
            case 1:
                value, at = body[at : at + 8], at + 8
            case 2:
                length = varint()
                value, at = body[at : at + length], at + length
                assert len(value) == length, "a message is cut"
            case 5:
                value, at = body[at : at + 4], at + 4
            case other:
                raise AssertionError(f"wire type {other}")
        found.setdefault(key >> 3, []).append(value)
    return found


def text(message: dict, number: int) -> str:
    return message.get(number, [b""])[0].decode("utf-8")


def fixed(message: dict, number: int) -> int:
    return struct.unpack("<Q", message[number][0])[0] if number in message else 0


def attributes(pairs) -> dict:
    found = {}
    for pair in map(fields, pairs):
        value = fields(pair[2][0])
        kind, (content, *_) = next(iter(value.items()))
        match kind:
            case 1:
                content = content.decode("utf-8")
            case 2:
                content = bool(content)
            case 3:
                content = content - (1 << 64) if content >> 63 else content
            case 4:
                content = struct.unpack("<d", content)[0]
        found[text(pair, 1)] = content
    return found


def decode_own_lines(body: bytes) -> list[Line]:
    lines = []
    for resource in map(fields, fields(body).get(1, [])):
        common = attributes(fields(resource[1][0])[1])
        for scope in map(fields, resource[2]):
            assert text(fields(scope[1][0]), 1) == "howdah"
            for record in map(fields, scope.get(2, [])):
                assert fixed(record, 1) and fixed(record, 11)
                content = text(fields(record[5][0]), 1)
                found = (text(record, 3), content, attributes(record.get(6, [])))
                lines.append(Line(record.get(9, [b""])[0].hex(), *found, common))
    return lines


def decode_own(body: bytes, is_trace: bool) -> tuple[list[Span], list[Point]]:
    def numbers(points: list, labels: int):
        for point in map(fields, points):
            if 4 in point:
                value = struct.unpack("<d", point[4][0])[0]
            else:
                value = struct.unpack("<q", point[6][0])[0] if 6 in point else 0
            yield attributes(point.get(labels, [])), value

    spans, points = [], []
    for resource in map(fields, fields(body).get(1, [])):
        common = attributes(fields(resource[1][0])[1])
        for scope in map(fields, resource[2]):
            assert text(fields(scope[1][0]), 1) == "howdah"
            if is_trace:
                for s in map(fields, scope.get(2, [])):
                    ids = [s.get(number, [b""])[0].hex() for number in (1, 2, 4)]
                    status = fields(s[15][0]).get(3, [0])[0] if 15 in s else 0
                    times = (fixed(s, 7), fixed(s, 8))
                    events = [(fixed(e, 1), text(e, 2), attributes(e.get(3, []))) for e in map(fields, s.get(11, []))]
                    rest = (text(s, 3), attributes(s.get(9, [])), status, common, events)
                    spans.append(Span(*ids, text(s, 5), s[6][0], *times, *rest))
                continue
            for metric in map(fields, scope.get(2, [])):
                name, unit = text(metric, 1), text(metric, 3)
                if 9 in metric:
                    for point in map(fields, fields(metric[9][0]).get(1, [])):
                        packed = point[6][0]
                        buckets = list(struct.unpack(f"<{len(packed) // 8}Q", packed))
                        points.append(Point(name, attributes(point.get(9, [])), fixed(point, 4), buckets, unit))
                    continue
                data = fields(metric.get(7, metric.get(5))[0])
                points += [Point(name, labels, value, [], unit) for labels, value in numbers(data.get(1, []), 7)]
    return spans, points
