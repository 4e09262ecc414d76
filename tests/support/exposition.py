"""The numbers of `GET /metrics`: the texts read by Prometheus' own parsers, and a decoder of its protocol buffers."""

import struct
from dataclasses import dataclass, field

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from support.otlp import fields, text
from support.server import Howdah

OPENMETRICS = [("Accept", "application/openmetrics-text; version=1.0.0")]
PROTOBUF_TYPE = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
# As Prometheus 2.42 with native histograms sends it.
PROTOBUF = [
    ("Accept", f"{PROTOBUF_TYPE.replace('; ', ';')},application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
]


class Exposition:
    """All samples of one scrape."""

    def __init__(self, text: str, is_openmetrics: bool = False):
        self.text = text
        self.families = list((parse_openmetrics if is_openmetrics else parse_prometheus)(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    @classmethod
    def of(cls, server: Howdah) -> "Exposition":
        response = server.api("GET", "/metrics", headers=OPENMETRICS)
        assert response.status == 200, response.text
        assert response.header("Content-Type").startswith("application/openmetrics-text"), response.headers
        return cls(response.text, is_openmetrics=True)

    def values(self, name: str, **labels: str) -> list[float]:
        """The values of the samples with this name and at least these labels."""
        return [s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()]

    def sum(self, name: str, **labels: str) -> float:
        return sum(self.values(name, **labels))

    def counters(self) -> dict:
        """The value of each counter, by name and labels; buckets, sums and counts of histograms are counters, too."""
        kinds = {family.name: family.type for family in self.families}
        base = {sample: family.name for family in self.families for sample in {s.name for s in family.samples}}
        return {
            (s.name, *sorted(s.labels.items())): s.value
            for s in self.samples
            if kinds[base[s.name]] in ("counter", "histogram")
        }


@dataclass
class Histogram:
    """A histogram of the protocol buffers."""

    name: str
    labels: dict
    count: int
    sum: float
    classic: dict[float, int]
    """By upper bound, with those below it."""
    schema: int
    zero_threshold: float
    zero_count: int
    native: dict[int, int] = field(default_factory=dict)
    """By index."""


class Families:
    """All families of an exposition in protocol buffers (io.prometheus.client.MetricFamily, with their lengths)."""

    def __init__(self, body: bytes):
        self.values: dict[tuple, float] = {}
        """Of counters and gauges, by name and labels."""
        self.histograms: list[Histogram] = []
        while body:
            family, body = delimited(body)
            found = fields(family)
            name, kind = text(found, 1), found[3][0]
            for metric in map(fields, found.get(4, [])):
                labels = {text(pair, 1): text(pair, 2) for pair in map(fields, metric.get(1, []))}
                if kind == 4:
                    self.histograms.append(histogram(name, labels, fields(metric[7][0])))
                else:
                    [value] = metric[{0: 3, 1: 2}[kind]]
                    self.values[(name, *sorted(labels.items()))] = double(fields(value), 1)

    @classmethod
    def of(cls, server: Howdah) -> "Families":
        response = server.api("GET", "/metrics", headers=PROTOBUF)
        assert (response.status, response.header("Content-Type")) == (200, PROTOBUF_TYPE)
        return cls(response.body)


def delimited(body: bytes) -> tuple[bytes, bytes]:
    """A message behind its length, and the rest."""
    length = shift = at = 0
    while True:
        length |= (body[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if body[at - 1] < 0x80:
            break
    assert at + length <= len(body), "the exposition is cut"
    return body[at : at + length], body[at + length :]


def histogram(name: str, labels: dict, found: dict) -> Histogram:
    classic = {double(bucket, 2): bucket.get(1, [0])[0] for bucket in map(fields, found.get(3, []))}
    of = Histogram(name, labels, found[1][0], double(found, 2), classic, signed(found[5][0]), double(found, 6), found[7][0])
    deltas, index, count = iter(found.get(13, [])), 0, 0
    for span in map(fields, found.get(12, [])):
        index += signed(span[1][0])
        for _ in range(span[2][0]):
            count += signed(next(deltas))
            of.native[index] = count
            index += 1
    assert next(deltas, None) is None, "each bucket is within a span"
    return of


def signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def double(message: dict, number: int) -> float:
    return struct.unpack("<d", message[number][0])[0]
