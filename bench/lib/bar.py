"""The bar: what howdah promises against nginx + php-fpm, each promise judged from the summary of a run."""

from dataclasses import dataclass

from lib.load import MANY_CONNECTIONS
from lib.rounds import Cell

FAST_PAGES, FAST_CONNECTIONS, FAST_RATIO = ["hello", "json"], 100, 2.5
PHP_BOUND_PAGES = ["phpinfo", "loop"]
STATIC_RATIOS = {"10k": 0.8, "1m": 0.7}
# Columns of the table in which less is better.
LESS_IS_BETTER = ["p50_ms", "p90_ms", "p99_ms", "non_2xx", "socket_errors", "cpu_seconds_per_1000", "pss_bytes"]
LATENCIES = ["p50_ms", "p90_ms", "p99_ms"]
# Where more of its answers than this are errors, a server's latencies are those of its errors.
ERRORS_SPOIL_LATENCY = 0.01


@dataclass(frozen=True)
class Verdict:
    met: bool | None  # None: not measured
    promise: str
    measured: str

    def __str__(self):
        word = {True: "met    ", False: "MISSED ", None: "unknown"}[self.met]
        return f"{word}  {self.promise}: {self.measured}"


def needed_cells(chosen_pages):
    """The one cell that a plan of wrk alone would lack."""
    return [Cell(page, MANY_CONNECTIONS, "ab") for page in chosen_pages if page.name == "session"]


def judge(cells):
    return [
        *(_fast(cells, page) for page in FAST_PAGES),
        *(verdict for page in PHP_BOUND_PAGES for verdict in _not_below(cells, page)),
        _session(cells),
        *(verdict for page, least in STATIC_RATIOS.items() for verdict in _static(cells, page, least)),
    ]


def _fast(cells, page):
    promise = f"{page} at {FAST_CONNECTIONS} connections: at least {FAST_RATIO} × req/s, p99 not above"
    cell = _find(cells, page, FAST_CONNECTIONS, "wrk")
    if not cell:
        return _unknown(promise)
    ours, theirs = _both(cell)
    met = cell["ratio"] >= FAST_RATIO and _below(ours["p99_ms"], theirs["p99_ms"], or_equal=True) and not _errors(ours)
    return Verdict(met, promise, f"{cell['ratio']:.2f} ×, p99 {_plain('p99_ms', ours['p99_ms'])} against "
                                 f"{_plain('p99_ms', theirs['p99_ms'])} ms, {_errors(ours)} errors")


def _not_below(cells, page):
    promise = f"{page}: not below in any column"
    measured = [cell for cell in cells if cell["page"] == page and cell["ratio"] is not None]
    for cell in measured:
        ours, theirs = _both(cell)
        skipped = LATENCIES if _spoilt(theirs) and not _spoilt(ours) else []
        worse = [f"{key} {_plain(key, ours[key])} against {_plain(key, theirs[key])}" for key in LESS_IS_BETTER
                 if key not in skipped and None not in (ours[key], theirs[key]) and ours[key] > theirs[key]]
        if cell["ratio"] < 1:
            worse.insert(0, "req/s")
        note = "; latencies not compared: nginx-fpm's are those of its errors" if skipped else ""
        yield Verdict(not worse, f"{promise} (c={cell['connections']} {cell['tool']})",
                      f"{cell['ratio']:.3f} ×" + (f"; below in {', '.join(worse)}" if worse else "") + note)
    if not measured:
        yield _unknown(promise)


def _session(cells):
    promise = f"session, {MANY_CONNECTIONS} connections, 15,000 requests with ab: 0 failed, p90 below"
    cell = _find(cells, "session", MANY_CONNECTIONS, "ab")
    if not cell:
        return _unknown(promise)
    ours, theirs = _both(cell)
    met = _errors(ours) == 0 and _below(ours["p90_ms"], theirs["p90_ms"])
    return Verdict(met, promise, f"{_errors(ours)} failed (nginx-fpm: {_errors(theirs)} of {theirs['requests']}), "
                                 f"p90 {_plain('p90_ms', ours['p90_ms'])} against {_plain('p90_ms', theirs['p90_ms'])} ms")


def _static(cells, page, least):
    promise = f"{page}: at least {least} of nginx"
    measured = [cell for cell in cells if cell["page"] == page and cell["ratio"] is not None]
    for cell in measured:
        errors = _errors(cell["servers"]["howdah"])
        yield Verdict(cell["ratio"] >= least and not errors,
                      f"{promise} (c={cell['connections']} {cell['tool']})", f"{cell['ratio']:.2f}, {errors} errors")
    if not measured:
        yield _unknown(promise)


def _find(cells, page, connections, tool):
    for cell in cells:
        if (cell["page"], cell["connections"], cell["tool"]) == (page, connections, tool) and cell["ratio"] is not None:
            return cell
    return None


def _both(cell):
    return cell["servers"]["howdah"], cell["servers"]["nginx-fpm"]


def _errors(figures):
    return figures["non_2xx"] + figures["socket_errors"]


def _below(ours, theirs, or_equal=False):
    """None is the latency of a load generator that gave up: worse than any."""
    if ours is None or theirs is None:
        return theirs is None
    return ours < theirs or (or_equal and ours == theirs)


def _spoilt(figures):
    return _errors(figures) > ERRORS_SPOIL_LATENCY * figures["requests"]


def _plain(key, value):
    if value is None:
        return "none"
    if key == "pss_bytes":
        return f"{value / 2**20:.1f} MiB"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _unknown(promise):
    return Verdict(None, promise, "not measured")
