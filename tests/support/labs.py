"""Labs that tests run."""

import json
import os
import subprocess
from pathlib import Path
from typing import Mapping

from support.command_line import howdah


def run_lab(path: Path, *options: str, env: Mapping[str, str] = {}) -> tuple[dict, subprocess.CompletedProcess]:
    """Runs a lab to its end; returns its results."""
    out = path.parent / "out"
    result = howdah("lab", "run", path, "--out", out, *options, env=env, timeout=240)
    assert result.returncode == 0, result.stderr
    return json.loads((out / "results.json").read_text()), result


def processes_in(place: Path) -> list[str]:
    """The command lines of processes whose working folder is below `place`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(os.readlink(process / "cwd")).startswith(f"{place}/"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def shortened(lab: Path, **changes) -> Path:
    """The same lab in a second or two: one round, few clients, its first load of each kind. Written beside it."""
    content = {**json.loads(lab.read_text()), "rounds": 1, **changes}
    for load in content["loads"]:
        load["warm_up"] = "0s"
        load.pop("objective", None)
        if "schedule" in load:
            load["schedule"] = "const(30, 300ms)"
        else:
            load["connections"] = 4
            load.update({"requests": 40} if "requests" in load else {"duration": "200ms"})
    kinds = {("schedule" in load, "requests" in load, str(load.get("targets"))): load for load in reversed(content["loads"])}
    content["loads"] = [load for load in content["loads"] if load in kinds.values()]
    path = lab.with_name("short.json")
    path.write_text(json.dumps(content))
    return path


def assert_all_answered(results: dict) -> None:
    """Each stack answered each request rightly. On a busy machine the load generator may be late: a void run is right then."""
    for run in results["runs"]:
        assert run["state"] in ("complete", "voided"), run
        assert (run["failed"], set(run["statuses"])) == (0, {"200"}), run
    assert len(results["runs"]) == len(results["stacks"]) * len(results["loads"])
