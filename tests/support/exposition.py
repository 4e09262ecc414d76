"""The numbers of `GET /metrics`, read by Prometheus' own parsers."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from support.server import Howdah

OPENMETRICS = [("Accept", "application/openmetrics-text; version=1.0.0")]


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
