"""The floor of all figures: PHP's own request start-up, execution and request shut-down in one process, nothing around it."""

import subprocess

from lib.lab import BENCH, PHP, executable

FLOOR_REQUESTS = 50_000


def floor_microseconds(page, is_worker=False):
    """CPU microseconds per request."""
    script = ["--worker", BENCH / "pages/worker.php"] if is_worker else [BENCH / "pages" / f"{page}.php"]
    command = [executable().with_name(f"howdah-php{PHP}"), "--floor", *script, str(FLOOR_REQUESTS)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
