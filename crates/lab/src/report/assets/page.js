// The page: what is chosen, and drawing again when that or the width changes.

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId('data').textContent);
for (const element of document.querySelectorAll('[data-mark]')) fillMark(element, Number(element.dataset.mark));

for (const button of document.querySelectorAll('.copy')) {
  const text = button.closest('.code').querySelector('code');
  button.hidden = false;
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = 'Copied';
    } catch {
      // Without the right to write into the clipboard, the text is selected for Ctrl+C.
      getSelection().selectAllChildren(text);
      button.textContent = 'Selected: press Ctrl+C';
    }
    setTimeout(() => { button.textContent = 'Copy'; }, 3000);
  });
}

const measured = data.loads.map((_, index) => index).filter((load) => data.cells.some((cell) => cell.load === load) || data.runs.some((run) => run.load === load) || data.probes.some((probe) => probe.load === load));
const state = {
  stacks: data.stacks.map((_, index) => index),
  load: measured.find((load) => data.loads[load].is_open) ?? measured[0] ?? 0,
  time: 'p99',
  round: 0,
  view: 'together',
  log: false,
  baseline: 0,
};

// Times that differ by more than a factor of 20 are read on a logarithmic scale.
function wantsLog() {
  const times = data.cells.filter((cell) => cell.load === state.load).map((cell) => cell.estimates.latency_p99?.value).filter((time) => time > 0);
  return times.length > 1 && Math.max(...times) / Math.min(...times) > 20;
}

function draw() {
  const sections = { 'chart-time': drawTime, 'chart-distribution': drawDistribution, 'chart-bars': drawBars };
  for (const [id, drawOne] of Object.entries(sections)) drawOne(byId(id), data, state);
  drawRate(byId('chart-rate'), data, state, byId('rate-hint'));
  drawPairs(byId('pairs'), data, state);
  const step = Math.max(1, ...data.runs.filter((run) => run.load === state.load).map((run) => run.step));
  const rounds = state.round ? `round ${state.round}` : 'the median of the rounds that count';
  const points = step > 1 ? ` Each point is ${step} seconds: the highest time and memory, the mean rate and CPU.` : '';
  byId('time-hint').textContent = `${data.loads[state.load].label}, ${rounds}. A request belongs to the second in which it was due. The dotted line is the offered rate.${points}`;
  for (const row of document.querySelectorAll('tr[data-stack]')) row.hidden = !state.stacks.includes(Number(row.dataset.stack));
}

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => {
    const option = html('option', { value }, text);
    option.selected = value === chosen;
    return option;
  }));
  select.closest('label').hidden = entries.length < 2;
}

function roundsOf(load) {
  return [...new Set(data.runs.filter((run) => run.load === load && run.sent.length).map((run) => run.round))].sort((a, b) => a - b);
}

function fillRounds() {
  const rounds = roundsOf(state.load);
  if (!rounds.includes(state.round)) state.round = 0;
  options(byId('choose-round'), [[0, 'median'], ...rounds.map((round) => [round, `round ${round}`])], state.round);
}

function start() {
  const boxes = data.stacks.map((stack, index) => {
    const box = html('input', { type: 'checkbox' });
    box.checked = true;
    box.addEventListener('change', () => {
      state.stacks = boxes.flatMap((other, number) => (other.checked ? [number] : []));
      draw();
    });
    byId('choose-stacks').append(html('label', { class: 'chip' }, box, markOf(index), stack.label));
    return box;
  });
  byId('all-stacks').addEventListener('click', () => {
    boxes.forEach((box) => { box.checked = true; });
    state.stacks = boxes.map((_, index) => index);
    draw();
  });
  const choose = (id, change) => byId(id).addEventListener('change', (event) => { change(event.target); draw(); });
  choose('choose-load', (select) => {
    state.load = Number(select.value);
    fillRounds();
    state.log = byId('choose-log').checked = wantsLog();
  });
  choose('choose-time', (select) => { state.time = select.value; });
  choose('choose-round', (select) => { state.round = Number(select.value); });
  choose('choose-view', (select) => { state.view = select.value; });
  choose('choose-log', (box) => { state.log = box.checked; });
  choose('choose-baseline', (select) => { state.baseline = Number(select.value); });
  options(byId('choose-load'), measured.map((load) => [load, data.loads[load].label]), state.load);
  options(byId('choose-baseline'), data.stacks.map((stack, index) => [index, stack.label]), state.baseline);
  fillRounds();
  state.log = byId('choose-log').checked = wantsLog();
  byId('controls').hidden = byId('pair-controls').hidden = false;
  byId('controls').addEventListener('submit', (event) => event.preventDefault());
  draw();

  let width = byId('charts').clientWidth;
  new ResizeObserver(() => {
    if (byId('charts').clientWidth === width) return;
    width = byId('charts').clientWidth;
    draw();
  }).observe(byId('charts'));
}

if (byId('charts') && measured.length) start();

// On paper, all is unfolded; afterwards, as it was.
let folded = [];
addEventListener('beforeprint', () => {
  folded = [...document.querySelectorAll('details:not([open])')];
  folded.forEach((element) => { element.open = true; });
});
addEventListener('afterprint', () => folded.forEach((element) => { element.open = false; }));
