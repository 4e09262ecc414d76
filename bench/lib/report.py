"""Medians over the rounds, the table for people, and the JSON for everything else."""

import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

# The table shows the median of the rounds for these figures; for errors the sum, as a median would hide a bad round.
MEDIANS = ["per_second", "p50_ms", "p90_ms", "p99_ms", "cpu_seconds_per_1000", "pss_bytes"]
SUMS = ["requests", "non_2xx", "socket_errors"]


def summarise(samples):
    """[{"page", "connections", "tool", "servers": {name: {…, "rounds": […]}}, "ratio"}] in the order of measurement."""
    cells = []
    for cell, by_server in samples.items():
        servers = {name: {**_summary(rounds), "rounds": rounds} for name, rounds in by_server.items() if rounds}
        cells.append({
            "page": cell.page.name, "connections": cell.connections, "tool": cell.tool, "servers": servers,
            "ratio": _ratio(servers),
        })
    return cells


def _summary(rounds):
    summary = {}
    for key in MEDIANS:
        values = [figures[key] for figures in rounds if figures[key] is not None]
        summary[key] = statistics.median(values) if values else None
    return summary | {key: sum(figures[key] for figures in rounds) for key in SUMS}


def _ratio(servers):
    """howdah's good answers per second over nginx + php-fpm's; None if one was not measured."""
    ours, theirs = servers.get("howdah"), servers.get("nginx-fpm")
    if ours and theirs and theirs["per_second"]:
        return ours["per_second"] / theirs["per_second"]
    return None


def table(cells):
    head = ["page", "conns", "tool", "server", "req/s", "p50 ms", "p90 ms", "p99 ms",
            "non-2xx", "sock.err", "CPU s/1k", "PSS MiB", "ratio"]
    rows = [head]
    for cell in cells:
        place = [cell["page"], f"{cell['connections']:,}", cell["tool"]]
        for name, figures in cell["servers"].items():
            ratio = f"{cell['ratio']:.2f}" if name == "howdah" and cell["ratio"] is not None else ""
            rows.append(place + [
                name, f"{figures['per_second']:,.0f}",
                *(_or_dash(figures[key], 1, ".2f") for key in ("p50_ms", "p90_ms", "p99_ms")),
                f"{figures['non_2xx']:,}", f"{figures['socket_errors']:,}",
                _or_dash(figures["cpu_seconds_per_1000"], 1, ".3f"), _or_dash(figures["pss_bytes"], 2**20, ".1f"), ratio])
            place = ["", "", ""]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(text.ljust(width) if column < 4 and column != 1 else text.rjust(width)
                  for column, (text, width) in enumerate(zip(row, widths))).rstrip()
        for row in rows)


def _or_dash(value, unit, form):
    return "-" if value is None else format(value / unit, form)


def circumstances(bench, alike, options):
    """The facts that a reader needs to judge the figures or to repeat them."""
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": options.command,
        "commit": _output(["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]),
        "machine": {"cpu": _cpu_model(), "cores": os.cpu_count(), "kernel": platform.release(),
                    "load_average_before": os.getloadavg()},
        "versions": {server.name: server.version for server in bench.servers} | {"php": alike["php"]},
        "processes": bench.processes, "rounds": options.rounds, "seconds": options.seconds, "pinned": options.pin,
        "body_bytes": alike["body_bytes"],
    }


def write_json(path, document):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def _output(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
