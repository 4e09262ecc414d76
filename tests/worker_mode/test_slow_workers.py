"""Slow code is explained in worker mode as in classic mode."""

import json

from support.waiting import wait_for

CODE = """
function nap() { usleep(700000); }
$handler = static function () { if (isset($_GET['slow'])) { nap(); } echo getmypid(); };
while (howdah\\handle_request($handler)) { }
"""


def test_a_slow_request_is_logged_with_its_stack(folder, run):
    folder.php("worker.php", "usleep(600000);" + CODE)
    application = {"type": "php", "root": str(folder.root), "processes": 1, "worker": {"script": "worker.php"}}
    server = run({"applications": {"app": {**application, "slow_log": {"threshold": 0.2}}}})
    path = server.directory / "state" / "slow" / "app.jsonl"

    def events():
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    for number in range(2):
        assert server.get(f"/?slow={number}").status == 200
    ends = wait_for(lambda: len(e := [line for line in events() if line["event"] == "end"]) == 2 and e, "two ends")
    assert [line["url"] for line in ends] == ["/?slow=0", "/?slow=1"], "the boot is no slow request"
    samples = [line for line in events() if line["event"] == "sample"]
    assert samples and all("nap" in [frame["function"] for frame in line["backtrace"]] for line in samples), samples
