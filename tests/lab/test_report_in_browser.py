"""The report of a lab, in a real browser: no other file is read, texts of strangers stay text, and all is reachable.

Pictures of the report are in the folder that HOWDAH_PICTURES names, for a person to look at.
"""

import json
import os
import re
from pathlib import Path
from statistics import median

import pytest

from support.browser import PROGRAM, browser
from support.command_line import howdah
from support.server import REPOSITORY

pytestmark = pytest.mark.xdist_group("browser")

SAMPLE = REPOSITORY / "crates/lab/testdata/results-sample.json"
HOSTILE = "</script><script>window.attacked = 1</script><img src=x onerror='window.attacked = 2'>\u202e\"&"
PHONE = 390


@pytest.fixture(scope="module")
def page():
    assert PROGRAM, "chromium-headless-shell is missing: make test-packages"
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def sample() -> dict:
    return json.loads(SAMPLE.read_text())


@pytest.fixture
def report(tmp_path):
    """Writes the report of some results."""

    def write(results: dict) -> Path:
        (tmp_path / "results.json").write_text(json.dumps(results))
        written = howdah("lab", "report", tmp_path)
        assert written.returncode == 0, written.stderr
        return tmp_path / "report.html"

    return write


@pytest.mark.parametrize("name, width, dark", [("desktop", 1280, False), ("phone", PHONE, False), ("dark", 1280, True)])
def test_the_report_is_complete_on_each_screen(page, report, sample, name, width, dark):
    page.open(report(sample), width=width, dark=dark)
    keep_picture(page, f"report-{name}.png")
    assert page.complaints() == []
    assert page.run("document.documentElement.scrollWidth") == width, "wider than the screen"
    assert page.run("document.querySelector('.headline').innerText").startswith("Run howdah")
    for chart, lines in [("chart-time", 20), ("chart-distribution", 4), ("chart-rate", 2), ("chart-bars", 12)]:
        drawn = f"document.querySelectorAll('#{chart} path.series, #{chart} rect').length"
        assert page.run(drawn) >= lines, chart
    outside = """[...document.querySelectorAll('.chart svg')].flatMap((picture) =>
        [...picture.querySelectorAll('text')].filter((text) => text.getBoundingClientRect().right > innerWidth + 1).map((text) => text.textContent))"""
    assert page.run(outside) == []
    assert page.run("matchMedia('(prefers-color-scheme: dark)').matches") is dark
    assert poor_contrasts(page) == []


def test_a_line_is_at_the_height_of_its_value(page, report, sample):
    page.open(report(sample))
    drawn = page.run("""(() => {
        const picture = document.querySelector('#chart-time svg[role=img]');
        const of = (text) => [Number(text.textContent.replace(',', '')), Number(text.getAttribute('y')) - 4];
        const ticks = [...picture.querySelectorAll('text[text-anchor=end]')].map(of);
        const next = ticks.findIndex((tick, index) => index && tick[0] === 0);
        const path = picture.querySelector('path.series').getAttribute('d');
        return {ticks: ticks.slice(0, next), points: path.slice(1).split('L').map((point) => point.split(' ').map(Number))};
    })()""")
    (low, bottom), (high, top) = drawn["ticks"][0], drawn["ticks"][-1]
    runs = [run for run in sample["runs"] if (run["stack"], run["load"], run["state"]) == ("howdah", "rate-200", "complete")]
    assert len(runs) == 3 and len(drawn["points"]) == len(runs[0]["seconds"]) and high > low
    for second, (_, y) in enumerate(drawn["points"]):
        value = low + (high - low) * (bottom - y) / (bottom - top)
        assert value == pytest.approx(median(run["seconds"][second]["latency"]["p99"] for run in runs), rel=0.03), second


def test_texts_of_strangers_stay_text(page, report, sample):
    results = replace_texts(json.loads(json.dumps(sample)))
    page.open(report(results))
    page.run("for (const folded of document.querySelectorAll('details')) folded.open = true")
    assert page.run("window.attacked") is None
    assert page.run("document.images.length") == 0
    assert page.run("document.scripts.length") == 2
    shown = page.run("document.body.innerText")
    assert shown.count(HOSTILE) > 10
    assert page.run("document.querySelector('.chip').textContent") == HOSTILE
    assert page.run("document.querySelector('#choose-load').textContent").startswith(HOSTILE)
    assert page.complaints() == []


def test_stacks_loads_and_rounds_can_be_chosen(page, report, sample):
    page.open(report(sample))
    lines = "document.querySelectorAll('#chart-distribution path.series').length"
    rows = "[...document.querySelectorAll('#tables tr[data-stack]')].filter((row) => !row.hidden).length"
    assert (page.run(lines), page.run(rows)) == (4, 16)
    page.run("document.querySelectorAll('.chip input')[1].click()")
    assert (page.run(lines), page.run(rows)) == (3, 12)
    page.run("document.querySelector('#all-stacks').click()")
    assert page.run(lines) == 4
    choose(page, "choose-load", 0)
    assert "50 connections" in page.run("document.querySelector('#time-hint').innerText")
    choose(page, "choose-round", 2)
    assert "round 2" in page.run("document.querySelector('#time-hint').innerText")
    choose(page, "choose-view", "beside")
    assert page.run("document.querySelectorAll('#chart-time svg[role=img]').length") == 4
    # The same scale in all pictures: the labels of the axes are the same.
    labels = "[...document.querySelectorAll('#chart-time svg[role=img]')].map((svg) => [...svg.querySelectorAll('text')].map((text) => text.textContent).join())"
    assert len(set(page.run(labels))) == 1
    choose(page, "choose-view", "together")
    assert page.complaints() == []


def test_noise_is_called_noise(page, report, sample):
    page.open(report(sample))
    choose(page, "choose-load", 0)
    choose(page, "choose-baseline", 1)
    cells = page.run("[...document.querySelectorAll('#pairs td')].map((cell) => cell.innerText)")
    # Two nginx stacks, one over TCP: p99 is the same but for noise.
    assert any("noise" in cell for cell in cells) and any("better" in cell for cell in cells)
    of_sample = [pair for pair in sample["comparisons"] if pair["load"] == "closed-50" and "nginx-fpm" in (pair["stack"], pair["baseline"])]
    significant = sum(pair["significant"] for pair in of_sample if pair["metric"] not in ("latency_p80", "latency_p90"))
    assert sum("noise" not in cell for cell in cells) == significant


def test_the_keyboard_reaches_everything(page, report, sample):
    page.open(report(sample))
    reached = set()
    for _ in range(80):
        page.press("Tab")
        reached.add(page.run("(document.activeElement.closest('[id]')?.id ?? '') + ' ' + document.activeElement.tagName"))
    for place in ["choose-load SELECT", "chart-time svg", "chart-distribution svg", "tables DIV", "choose-stacks INPUT"]:
        assert place in reached, (place, sorted(reached))
    # The arrow keys read values out of a chart.
    page.run("document.querySelector('#chart-time svg[role=img]').focus()")
    page.press("End")
    last = page.run("document.querySelector('#chart-time .readout').innerText")
    page.press("ArrowLeft")
    before = page.run("document.querySelector('#chart-time .readout').innerText")
    assert last.startswith("7 s") and before.startswith("6 s") and "howdah: p99 " in last, (last, before)
    # The focus is visible.
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_on_paper_everything_is_unfolded(page, report, sample):
    page.open(report(sample))
    page.run("addEventListener('beforeprint', () => { window.printed = document.querySelectorAll('details:not([open])').length })")
    folded = page.run("document.querySelectorAll('details:not([open])').length")
    paper = page.pdf()
    assert folded > 3 and page.run("window.printed") == 0
    assert page.run("document.querySelectorAll('details:not([open])').length") == folded
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 20
    page.media(paper=True)
    assert page.run("getComputedStyle(document.querySelector('#controls')).display") == "none"


def test_without_scripts_the_verdict_and_the_tables_are_there(page, report, sample):
    page.open(report(sample), scripts=False)
    keep_picture(page, "report-without-scripts.png")
    shown = page.command("DOM.getOuterHTML", nodeId=page.command("DOM.getDocument", depth=-1)["root"]["nodeId"])["outerHTML"]
    assert "The charts need JavaScript" in shown and 'class="headline"' in shown
    page.command("Emulation.setScriptExecutionDisabled", value=False)


def test_a_search_for_limits_alone_has_a_chart(page, report, sample):
    results = {**sample, "runs": [], "summaries": [], "comparisons": [], "verdict": None}
    page.open(report(results))
    assert page.run("document.querySelectorAll('#chart-rate svg[role=img]').length") == 1
    assert page.run("document.querySelector('.headline').innerText") == "howdah holds 800\u00a0requests/s."
    assert page.complaints() == []


def test_the_comparison_is_a_page(page, sample, tmp_path):
    after = json.loads(json.dumps(sample))
    after["machine"]["cores"] = 4
    for summary in after["summaries"]:
        if summary["stack"] == "howdah":
            summary["estimates"]["latency_p50"]["rounds"] = [time * 0.5 for time in summary["estimates"]["latency_p50"]["rounds"]]
    (tmp_path / "after.json").write_text(json.dumps(after))
    result = howdah("lab", "compare", SAMPLE, tmp_path / "after.json", "--html", tmp_path / "comparison.html")
    assert result.returncode == 0, result.stderr
    assert "Better in 2 of 56 figures, worse in none." in result.stdout and "cores: 2 -> 4" in result.stdout
    for width in (1280, PHONE):
        page.open(tmp_path / "comparison.html", width=width)
        keep_picture(page, f"comparison-{width}.png")
        assert page.run("document.documentElement.scrollWidth") == width
        assert page.run("document.querySelectorAll('td.better').length") == 4
        assert page.complaints() == []


def replace_texts(value, depth=0):
    """The results with a hostile text in each place for a text of people, applications and servers."""
    free = {"title", "description", "label", "content", "path", "reason", "remedy", "finding", "cpu", "policy", "schedule"}
    if isinstance(value, list):
        return [HOSTILE if isinstance(item, str) and depth > 1 and item.startswith(("status", "In each", "GET")) else replace_texts(item, depth + 1) for item in value]
    if isinstance(value, dict):
        for key, item in value.items():
            is_text = isinstance(item, str) and key in free
            value[key] = HOSTILE if is_text else [HOSTILE] if key in ("notes", "log", "caveats") else replace_texts(item, depth + 1)
    return value


def choose(page, control: str, value):
    page.run(f"{{ const control = document.getElementById('{control}'); control.value = {json.dumps(str(value))}; control.dispatchEvent(new Event('change')) }}")


def poor_contrasts(page) -> list:
    """Texts with a contrast below 4.5 to 1, as WCAG 2 counts it."""
    return page.run("""(() => {
        const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
        const light = (colour) => channels(colour).slice(0, 3).map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const paper = (element) => {
            for (let one = element; one; one = one.parentElement) {
                const colour = getComputedStyle(one).backgroundColor;
                if ((channels(colour)[3] ?? 1) > 0) return colour;
            }
            return 'rgb(255, 255, 255)';
        };
        const poor = new Set();
        const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            const element = walker.currentNode.parentElement;
            if (!walker.currentNode.textContent.trim() || !element.checkVisibility() || element.closest('script, noscript')) continue;
            const style = getComputedStyle(element);
            const [a, b] = [light(element instanceof SVGElement ? style.fill : style.color), light(paper(element))].sort((x, y) => y - x);
            if ((a + 0.05) / (b + 0.05) < 4.5) poor.add(`${element.tagName}.${element.getAttribute('class')}: ${style.color} on ${paper(element)}`);
        }
        return [...poor];
    })()""")


def keep_picture(page, name: str):
    place = os.environ.get("HOWDAH_PICTURES")
    if place:
        Path(place).mkdir(parents=True, exist_ok=True)
        page.screenshot(Path(place) / name)
