#!/usr/bin/env python3
"""Writes howdah.json, the Grafana board: `python3 contrib/grafana/make_board.py`.

The board is generated so that its panels look alike; edit the list here. tests/metrics/test_contrib.py checks that the
file is what this makes, and that each expression uses metrics and labels that howdah has.
"""

import json
from pathlib import Path

FILTER = 'instance=~"$instance",application=~"$application"'
HERE = 'instance=~"$instance"'


def quantile(share: float, metric: str, *by: str) -> str:
    labels = ", ".join([*by, "le"])
    return f"histogram_quantile({share}, sum by ({labels}) (rate(howdah_request_{metric}_seconds_bucket{{{FILTER}}}[$__rate_interval])))"


def rate(metric: str, by: str, where: str = FILTER) -> str:
    return f"sum by ({by}) (rate({metric}{{{where}}}[$__rate_interval]))"


# Each row: its title, and its panels: title, unit, and expressions with legends.
ROWS = [
    ("Requests", [
        ("Requests by status", "reqps", [(rate("howdah_requests_total", "status"), "{{status}}")]),
        ("Requests by application", "reqps", [(rate("howdah_requests_total", "application"), "{{application}}")]),
        ("Requests by route", "reqps", [(rate("howdah_requests_total", "route"), "{{route}}")]),
        ("Errors by application and route", "reqps", [
            (rate("howdah_requests_total", "application, route", f'{FILTER},status="5xx"'), "{{application}} {{route}}"),
        ]),
        ("Refused, by cause", "reqps", [(rate("howdah_requests_refused_total", "application, cause"), "{{application}} {{cause}}")]),
    ]),
    ("Time", [
        ("Whole request", "s", [(quantile(q, "duration"), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)]),
        ("Whole request, p95 by application", "s", [(quantile(0.95, "duration", "application"), "{{application}}")]),
        ("Whole request, p95 by route", "s", [(quantile(0.95, "duration", "application", "route"), "{{application}} {{route}}")]),
        ("First byte", "s", [(quantile(q, "first_byte"), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)]),
        ("Wait for a worker", "s", [(quantile(q, "queue"), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)]),
        ("PHP: time, and processor time", "s", [
            (quantile(0.95, "php"), "time p95"), (quantile(0.95, "cpu"), "processor p95"),
        ]),
    ]),
    ("Workers", [
        ("Workers by state", "short", [(f"sum by (state) (howdah_workers{{{FILTER}}})", "{{state}}"),
                                       (f"sum(howdah_workers_wanted{{{FILTER}}})", "wanted")]),
        ("Queue", "short", [(f"sum by (application) (howdah_queue_length{{{FILTER}}})", "{{application}} waits"),
                            (f"sum by (application) (howdah_requests_active{{{FILTER}}})", "{{application}} runs or waits")]),
        ("Deaths and starts", "short", [(rate("howdah_worker_deaths_total", "cause"), "{{cause}}"),
                                        (rate("howdah_worker_starts_total", "application"), "{{application}} started")]),
        ("Why the number changes", "short", [(rate("howdah_sizing_decisions_total", "reason"), "{{reason}}")]),
        ("Processors in PHP", "short", [(rate("howdah_worker_cpu_seconds_total", "application"), "{{application}}")]),
        ("Finished by PHP", "reqps", [(rate("howdah_worker_requests_total", "application"), "{{application}}")]),
        ("Busy workers", "short", [(rate("howdah_worker_busy_seconds_total", "application"), "{{application}}")]),
        ("Memory of workers", "bytes", [(f"sum by (application) (howdah_application_memory_bytes{{{FILTER}}})", "{{application}}")]),
        ("opcache: memory", "bytes", [(f"sum by (application, state) (howdah_opcache_memory_bytes{{{FILTER}}})", "{{application}} {{state}}")]),
        ("opcache: scripts compiled and restarts", "short", [
            (rate("howdah_opcache_misses_total", "application"), "{{application}} compiled"),
            (rate("howdah_opcache_restarts_total", "application"), "{{application}} restarts"),
        ]),
        ("opcache: scripts found", "short", [(rate("howdah_opcache_hits_total", "application"), "{{application}}")]),
        ("opcache: scripts in memory", "short", [(f"sum by (application) (howdah_opcache_scripts{{{FILTER}}})", "{{application}}")]),
    ]),
    ("Connections, TLS and upstreams", [
        ("Connections", "short", [(f"sum by (state) (howdah_connections{{{HERE}}})", "{{state}}")]),
        ("Connections per second", "short", [(f"sum(rate(howdah_connections_accepted_total{{{HERE}}}[$__rate_interval]))", "accepted")]),
        ("TLS handshakes", "short", [
            (rate("howdah_tls_handshakes_total", "version", HERE), "{{version}}"),
            (f"sum(rate(howdah_tls_sessions_resumed_total{{{HERE}}}[$__rate_interval]))", "resumed"),
            (f"sum(rate(howdah_tls_handshake_failures_total{{{HERE}}}[$__rate_interval]))", "failed"),
        ]),
        ("Certificates expire in", "s", [(f"howdah_certificate_expiry_timestamp_seconds{{{HERE}}} - time()", "{{certificate}}")]),
        ("Servers of upstreams", "short", [(f"howdah_upstream_server_up{{{HERE}}}", "{{upstream}} {{server}}")]),
        ("Bytes sent", "Bps", [(rate("howdah_response_body_bytes_total", "responder"), "{{responder}}")]),
    ]),
    ("howdah", [
        ("Processor time", "percentunit", [(rate("howdah_process_cpu_seconds_total", "process", HERE), "{{process}}")]),
        ("Memory (PSS)", "bytes", [(f"howdah_process_memory_bytes{{{HERE}}}", "{{process}}")]),
        ("Open descriptors", "short", [(f"howdah_process_open_descriptors{{{HERE}}}", "{{process}}")]),
        ("Spans of traces", "short", [
            (f"sum(rate(howdah_telemetry_spans_recorded_total{{{HERE}}}[$__rate_interval]))", "recorded"),
            (rate("howdah_telemetry_spans_total", "outcome", HERE), "{{outcome}}"),
        ]),
        ("Log lines for the collector", "short", [
            (f"sum(rate(howdah_telemetry_log_records_recorded_total{{{HERE}}}[$__rate_interval]))", "recorded"),
            (rate("howdah_telemetry_log_records_total", "outcome", HERE), "{{outcome}}"),
        ]),
        ("Lines lost for syslog or the journal", "short", [(rate("howdah_system_log_lines_lost_total", "log", HERE), "{{log}}")]),
        ("Time of a scrape", "s", [(f"howdah_scrape_duration_seconds{{{HERE}}}", "{{instance}}")]),
        ("Router starts, configuration", "short", [
            (f"howdah_router_starts_total{{{HERE}}}", "router starts"),
            (f"howdah_configuration_version{{{HERE}}}", "configuration"),
        ]),
    ]),
]


def panel(number: int, title: str, unit: str, expressions: list, x: int, y: int) -> dict:
    targets = [
        {"refId": chr(ord("A") + n), "expr": expression, "legendFormat": legend}
        for n, (expression, legend) in enumerate(expressions)
    ]
    return {
        "id": number, "type": "timeseries", "title": title, "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": 7, "w": 12, "x": x, "y": y}, "targets": targets,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 10}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
    }


def variable(name: str, query: str) -> dict:
    return {
        "name": name, "type": "query", "datasource": {"type": "prometheus", "uid": "${datasource}"}, "query": query,
        "refresh": 2, "multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
    }


def annotation(name: str, colour: str, title: str, expression: str) -> dict:
    return {
        "name": name, "enable": True, "iconColor": colour, "titleFormat": title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"}, "expr": expression,
    }


def board() -> dict:
    panels, y, number = [], 0, 1
    for title, members in ROWS:
        panels.append({"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        number, y = number + 1, y + 1
        for index, (name, unit, expressions) in enumerate(members):
            panels.append(panel(number, name, unit, expressions, 12 * (index % 2), y + 7 * (index // 2)))
            number += 1
        y += 7 * -(-len(members) // 2)
    return {
        "uid": "howdah", "title": "howdah", "tags": ["howdah", "php"], "schemaVersion": 38, "version": 1,
        "editable": True, "refresh": "30s", "time": {"from": "now-3h", "to": "now"}, "timezone": "",
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "data source"},
            variable("instance", "label_values(howdah_build_info, instance)"),
            variable("application", "label_values(howdah_application_up, application)"),
        ]},
        "annotations": {"list": [
            annotation("configuration", "blue", "configuration changed", f"changes(howdah_configuration_version{{{HERE}}}[1m]) > 0"),
            annotation("start", "purple", "howdah was started", f"changes(howdah_start_time_seconds{{{HERE}}}[1m]) > 0"),
        ]},
        "panels": panels,
    }


if __name__ == "__main__":
    Path(__file__).with_name("howdah.json").write_text(json.dumps(board(), indent=1) + "\n")
