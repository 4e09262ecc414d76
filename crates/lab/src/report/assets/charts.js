// The charts. Each draws the chosen stacks into an element of its own width.

const GUTTER = 54;

function median(values) {
  const known = values.filter((value) => value !== null && value !== undefined).sort((a, b) => a - b);
  if (!known.length) return null;
  const middle = known.length >> 1;
  return known.length % 2 ? known[middle] : (known[middle - 1] + known[middle]) / 2;
}

// The seconds of a stack under a load: of one round, or the median of the rounds that count.
function secondsOf(data, stack, load, round) {
  const runs = data.runs.filter((run) => run.stack === stack && run.load === load && (round ? run.round === round : run.counts) && run.sent.length);
  if (!runs.length) return null;
  const step = Math.max(...runs.map((run) => run.step));
  const length = Math.max(...runs.map((run) => Math.ceil(run.sent.length * run.step / step)));
  const columns = { step };
  for (const name of ['sent', 'right', 'failed', 'mean', 'p50', 'p90', 'p95', 'p99', 'max', 'cpu', 'memory']) {
    columns[name] = Array.from({ length }, (_, index) => median(runs.map((run) => run[name][Math.floor(index * step / run.step)] ?? null)));
  }
  return columns;
}

const PANELS = [
  { name: (state) => `Response time, ${state.time}, ms`, column: (state) => state.time, height: 150, isTime: true },
  { name: () => 'Requests per second: right answers', column: () => 'right', height: 90, also: 'sent' },
  { name: () => 'Failed requests per second', column: () => 'failed', height: 60 },
  { name: () => 'CPU, % of one core', column: () => 'cpu', height: 80 },
  { name: () => 'Memory (PSS), MiB', column: () => 'memory', height: 80, unit: 1 / 1048576 },
];

function drawTime(parent, data, state) {
  const series = state.stacks.map((stack) => ({ stack, seconds: secondsOf(data, stack, state.load, state.round) })).filter((one) => one.seconds);
  parent.replaceChildren();
  if (!series.length) return parent.append(html('p', { class: 'empty' }, 'No chosen stack has a run here.'));
  const length = Math.max(...series.map(({ seconds }) => seconds.sent.length * seconds.step));
  // The scales are common to all pictures, so that they can be compared side by side.
  const known = PANELS.map((panel) => series.flatMap(({ seconds }) => [panel.column(state), panel.also].filter(Boolean)
    .flatMap((column) => seconds[column].map((value) => (value === null ? NaN : value * (panel.unit ?? 1))))));
  if (state.view === 'together') return drawPanels(parent, data, state, series, length, known, parent.clientWidth);
  const grid = html('div', { class: 'beside' });
  parent.append(grid);
  const boxes = series.map(({ stack }) => html('div', {}, html('h4', {}, markOf(stack), ` ${data.stacks[stack].label}`)));
  grid.append(...boxes);
  series.forEach((one, index) => drawPanels(boxes[index], data, state, [one], length, known, boxes[index].clientWidth));
}

function drawPanels(parent, data, state, series, length, known, width) {
  const [right, gap] = [width - 10, 36];
  const height = PANELS.reduce((sum, panel) => sum + panel.height + gap, 0) + 24;
  const x = linearScale(0, Math.max(length - 1, 1), GUTTER, right, width < 500 ? 4 : 8);
  x.ticks = x.ticks.filter(Number.isInteger);
  const step = Math.max(...series.map(({ seconds }) => seconds.step));
  const count = Math.ceil(length / step);
  const places = Array.from({ length: count }, (_, index) => x.at(index * step));
  const describe = (index) => [
    html('span', {}, `${index * step} s`),
    ...series.map(({ stack, seconds }) => {
      const at = Math.floor(index * step / seconds.step);
      const memory = seconds.memory[at] === null ? NOTHING : figure(seconds.memory[at] / 1048576);
      return reading(stack, data.stacks[stack].label,
        `${state.time} ${figure(seconds[state.time][at])} ms, ${figure(seconds.right[at])} right of ${figure(seconds.sent[at])}/s, ${figure(seconds.failed[at])} failed/s, CPU ${figure(seconds.cpu[at])} %, ${memory} MiB`);
    }),
  ];
  const picture = frame(parent, { width, height, name: `Response time, rate, failures, CPU and memory over time: ${series.map(({ stack }) => data.stacks[stack].label).join(', ')}`, places, describe, top: 20, bottom: height - 24 });
  let top = 0;
  PANELS.forEach((panel, number) => {
    const [from, to] = [top + 24 + panel.height, top + 24];
    const scale = scaleFor(known[number], panel.isTime && state.log, from, to, panel.height / 26);
    picture.append(svg('text', { class: 'title', x: 0, y: top + 13 }, panel.name(state)));
    drawY(picture, scale, GUTTER, right);
    for (const tick of x.ticks) picture.append(svg('line', { class: 'grid', x1: x.at(tick).toFixed(1), x2: x.at(tick).toFixed(1), y1: to, y2: from }));
    for (const { stack, seconds } of series) {
      const points = (column) => seconds[column].map((value, index) => [
        x.at(index * seconds.step), value === null ? null : scale.at(value * (panel.unit ?? 1)),
      ]);
      // What was offered is a thin line behind what was answered.
      if (panel.also) {
        const path = points(panel.also).filter(([, y]) => y !== null).map(([a, b], index) => `${index ? 'L' : 'M'}${a.toFixed(1)} ${b.toFixed(1)}`).join('');
        picture.append(svg('path', { d: path, fill: 'none', stroke: 'var(--dim)', 'stroke-width': 1, 'stroke-dasharray': '1 3' }));
      }
      drawLine(picture, stack, points(panel.column(state)));
    }
    top += panel.height + gap;
  });
  drawX(picture, x, top - gap + 24, undefined, (tick) => `${tickLabel(tick)} s`);
}

// The share of the requests on a scale on which each nine has the same width.
function drawDistribution(parent, data, state) {
  parent.replaceChildren();
  const cells = data.cells.filter((cell) => cell.load === state.load && state.stacks.includes(cell.stack) && cell.distribution.length);
  if (!cells.length) return parent.append(html('p', { class: 'empty' }, 'No chosen stack has a right answer here.'));
  const [width, height] = [parent.clientWidth, 300];
  const rest = (share) => Math.max(1 - share, 1e-7);
  const smallest = Math.min(...cells.flatMap((cell) => cell.distribution.map(([share]) => (share < 1 ? rest(share) : 1))));
  const nines = Math.max(1, -Math.log10(smallest));
  const [left, right, top, bottom] = [GUTTER, width - 10, 24, height - 30];
  const at = (share) => Math.min(right, left + (right - left) * -Math.log10(Math.max(rest(share), smallest / 1.6)) / (nines + 0.2));
  const ticks = [0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999].filter((share) => rest(share) >= smallest * 0.99);
  const y = scaleFor(cells.flatMap((cell) => cell.distribution.map(([, time]) => time)), state.log, bottom, top, 6);
  const read = [0, 0.1, 0.25, 0.5, 0.75, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 0.99999].filter((share) => rest(share) >= smallest * 0.99);
  const timeAt = (cell, share) => cell.distribution.find(([known]) => known >= share - 1e-9)?.[1];
  const describe = (index) => [
    html('span', {}, `${Number((read[index] * 100).toFixed(5))} %`),
    ...cells.map((cell) => reading(cell.stack, data.stacks[cell.stack].label, `${figure(timeAt(cell, read[index]))} ms`)),
  ];
  const picture = frame(parent, { width, height, name: 'Distribution of response times', places: read.map(at), describe, top, bottom });
  picture.append(svg('text', { class: 'title', x: 0, y: 13 }, 'Response time, ms'));
  drawY(picture, y, left, right);
  drawX(picture, { ticks, at }, bottom, top, (share) => `${Number((share * 100).toFixed(5))} %`);
  for (const cell of cells) drawLine(picture, cell.stack, cell.distribution.map(([share, time]) => [at(share), y.at(time)]));
}

// Response time by the offered rate: the loads with a rate, the rates of a search, and each second as a dot.
function drawRate(parent, data, state, hint) {
  parent.replaceChildren();
  const metric = `latency_${state.time === 'max' ? 'p999' : state.time}`;
  const isOpen = (load) => data.loads[load].is_open;
  const points = [];
  for (const cell of data.cells) {
    const estimate = cell.estimates[metric];
    if (isOpen(cell.load) && estimate) points.push({ stack: cell.stack, rate: data.loads[cell.load].peak_rate, time: estimate.value, interval: estimate.interval, label: data.loads[cell.load].label });
  }
  for (const probe of data.probes) {
    if (probe.milliseconds !== null) points.push({ stack: probe.stack, rate: probe.rate, time: probe.milliseconds, hollow: !probe.held || probe.voided, label: `search, p${probe.percentile}, ${probe.voided ? 'void' : probe.held ? 'held' : 'missed'}` });
  }
  const dots = data.runs.filter((run) => run.counts && isOpen(run.load)).flatMap((run) => run.sent.map((rate, index) => ({ stack: run.stack, rate, time: run[state.time][index] }))).filter((dot) => dot.rate > 0 && dot.time > 0);
  const chosen = points.filter((point) => state.stacks.includes(point.stack));
  const shown = dots.filter((dot) => state.stacks.includes(dot.stack));
  hint.textContent = chosen.length || shown.length
    ? `Marks: ${state.time === 'max' ? 'p99.9' : state.time} of each load with a rate, at the highest rate of its schedule, with its interval; and each rate of a search, hollow if it was missed. Dots: single seconds.`
    : '';
  if (!chosen.length && !shown.length) return parent.append(html('p', { class: 'empty' }, 'No load of this lab offers a rate: with a fixed number of clients, the server sets the rate.'));
  const [width, height] = [parent.clientWidth, 300];
  const [left, right, top, bottom] = [GUTTER, width - 14, 24, height - 44];
  const rates = [...chosen, ...shown].map((point) => point.rate);
  const [low, high] = [Math.min(...rates), Math.max(...rates)];
  const isLog = high / low > 30;
  const x = isLog ? logScale(low / 1.1, high * 1.1, left, right, width / 90) : linearScale(0, high * 1.05, left, right, width / 90);
  const times = [...chosen.flatMap((point) => [point.time, ...(point.interval ?? [])]), ...shown.map((dot) => dot.time)];
  // A server at its limit is slower by some powers of ten.
  const y = scaleFor(times, state.log || Math.max(...times) / Math.min(...times) > 50, bottom, top, 6);
  const levels = [...new Set(chosen.map((point) => point.rate))].sort((a, b) => a - b);
  const describe = (index) => [
    html('span', {}, `${figure(levels[index])} requests/s`),
    ...chosen.filter((point) => point.rate === levels[index]).map((point) => reading(point.stack, data.stacks[point.stack].label, `${figure(point.time)} ms${point.interval ? ` (${figure(point.interval[0])}–${figure(point.interval[1])})` : ''}, ${point.label}`)),
  ];
  const picture = frame(parent, { width, height, name: 'Response time against offered rate', places: levels.map(x.at), describe, top, bottom });
  picture.append(svg('text', { class: 'title', x: 0, y: 13 }, 'Response time, ms'));
  picture.append(svg('text', { x: right, y: height - 6, 'text-anchor': 'end' }, 'offered requests per second'));
  drawY(picture, y, left, right);
  drawX(picture, x, bottom, top);
  // Not more dots than can be seen.
  const every = Math.ceil(shown.length / 1500);
  shown.forEach((dot, index) => {
    if (index % every === 0) picture.append(svg('circle', { class: 'dot', cx: x.at(dot.rate).toFixed(1), cy: y.at(dot.time).toFixed(1), r: 1.8, fill: colour(dot.stack) }));
  });
  for (const stack of state.stacks) {
    const own = chosen.filter((point) => point.stack === stack).sort((a, b) => a.rate - b.rate);
    drawLine(picture, stack, own.map((point) => [x.at(point.rate), y.at(point.time)]), { every: Infinity });
    for (const point of own) {
      if (point.interval) picture.append(whisker(stack, x.at(point.rate), y.at(point.interval[0]), x.at(point.rate), y.at(point.interval[1])));
      picture.append(markShape(stack, x.at(point.rate), y.at(point.time), 4.5, point.hollow));
    }
  }
}

function whisker(stack, x1, y1, x2, y2) {
  const cap = x1 === x2 ? `M${x1 - 4} ${y1}h8M${x1 - 4} ${y2}h8` : `M${x1} ${y1 - 4}v8M${x2} ${y2 - 4}v8`;
  return svg('path', { class: 'whisker', d: `M${x1} ${y1}L${x2} ${y2}${cap}`, stroke: colour(stack) });
}

const BARS = [
  { name: 'Requests per second', of: (cell) => estimateBar(cell.estimates.requests_per_second) },
  { name: 'CPU, % of one core', of: (cell) => cell.cpu && { value: cell.cpu.median, to: cell.cpu.max, text: `${figure(cell.cpu.median)}, max ${figure(cell.cpu.max)}` } },
  { name: 'Memory (PSS), MiB', of: (cell) => cell.memory && { value: cell.memory.median / 1048576, to: cell.memory.max / 1048576, text: `${figure(cell.memory.median / 1048576)}, max ${figure(cell.memory.max / 1048576)}` } },
  { name: 'Requests per CPU second', of: (cell) => estimateBar(cell.estimates.requests_per_cpu_second) },
];

function estimateBar(estimate) {
  if (!estimate) return null;
  const [low, high] = estimate.interval ?? [estimate.value, estimate.value];
  const interval = estimate.interval ? ` (${figure(low)}–${figure(high)})` : '';
  return { value: estimate.value, from: estimate.interval ? low : undefined, to: estimate.interval ? high : undefined, text: `${figure(estimate.value)}${interval}` };
}

function drawBars(parent, data, state) {
  parent.replaceChildren();
  const cells = state.stacks.map((stack) => data.cells.find((cell) => cell.load === state.load && cell.stack === stack)).filter(Boolean);
  if (!cells.length) return parent.append(html('p', { class: 'empty' }, 'No chosen stack has a run that counts here.'));
  const grid = html('div', { class: 'beside bars' });
  parent.append(grid);
  const boxes = BARS.map((bar) => html('div', {}, html('h4', {}, bar.name)));
  grid.append(...boxes);
  BARS.forEach((bar, number) => {
    const width = boxes[number].clientWidth;
    const rows = cells.map((cell) => ({ stack: cell.stack, bar: bar.of(cell) })).filter((row) => row.bar);
    if (!rows.length) return boxes[number].append(html('p', { class: 'empty' }, 'Not measured.'));
    const height = rows.length * 46 + 4;
    const picture = frame(boxes[number], { width, height, name: `${bar.name}: ${rows.map((row) => `${data.stacks[row.stack].label} ${row.bar.text}`).join('; ')}` });
    const x = linearScale(0, Math.max(...rows.map((row) => Math.max(row.bar.value, row.bar.to ?? 0))) || 1, 0, width - 12);
    rows.forEach((row, index) => {
      const y = index * 46;
      picture.append(markShape(row.stack, 6, y + 9, 4));
      const text = svg('text', { class: 'value', x: 16, y: y + 13 }, data.stacks[row.stack].label);
      picture.append(text, svg('text', { x: width - 2, y: y + 13, 'text-anchor': 'end' }, row.bar.text));
      shorten(text, width - 24 - row.bar.text.length * 6.6);
      picture.append(svg('rect', { x: 0, y: y + 20, width: Math.max(x.at(row.bar.value), 1).toFixed(1), height: 14, fill: colour(row.stack), 'fill-opacity': 0.75 }));
      if (row.bar.to !== undefined) picture.append(svg('path', { class: 'whisker', stroke: 'var(--ink)', d: `M${x.at(row.bar.from ?? row.bar.value).toFixed(1)} ${y + 27}H${x.at(row.bar.to).toFixed(1)}m0 -5v10${row.bar.from === undefined ? '' : `M${x.at(row.bar.from).toFixed(1)} ${y + 22}v10`}` }));
    });
  });
}

// Cuts a text to a width; the whole text appears when the pointer rests on it.
function shorten(text, width) {
  const whole = text.textContent;
  for (let length = whole.length - 1; length > 3 && text.getComputedTextLength() > width; length--) text.textContent = `${whole.slice(0, length)}…`;
  if (text.textContent !== whole) text.append(svg('title', {}, whole));
}

// Each stack against one of them, metric by metric.
function drawPairs(parent, data, state) {
  parent.replaceChildren();
  const rows = [];
  for (const stack of state.stacks) {
    if (stack === state.baseline) continue;
    const found = Object.keys(METRICS).map((metric) => pairOf(data, state.load, metric, stack, state.baseline));
    if (found.some(Boolean)) rows.push([stack, found]);
  }
  if (!rows.length) return parent.append(html('p', { class: 'empty' }, 'There are no two stacks to compare here.'));
  const head = html('tr', {}, html('th', { scope: 'col' }, 'Stack'), ...Object.values(METRICS).map((metric) => html('th', { scope: 'col' }, metric.name)));
  const cell = (metric, pair) => {
    if (!pair) return html('td', {}, NOTHING);
    const bounds = pair.interval ? `${signed(metric, pair.interval[0])} to ${signed(metric, pair.interval[1])}` : 'one round';
    const [name, word] = pair.better === undefined ? ['noise', 'noise'] : pair.better ? ['better', 'better'] : ['worse', 'worse'];
    return html('td', { class: name, title: bounds }, `${signed(metric, pair.ratio)} ${word}`, html('br'), html('small', {}, bounds));
  };
  const body = rows.map(([stack, found]) => html('tr', {}, html('th', { scope: 'row' }, markOf(stack), ` ${data.stacks[stack].label}`), ...found.map((pair, index) => cell(Object.keys(METRICS)[index], pair))));
  const caption = `${data.loads[state.load].label}: each stack against ${data.stacks[state.baseline].label}. “Noise”: chance explains the difference, or it is too small to matter.`;
  parent.append(html('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Differences' }, html('table', {}, html('caption', {}, caption), html('thead', {}, head), html('tbody', {}, ...body))));
}

// The comparison of two stacks in this direction: `better` is undefined for noise.
function pairOf(data, load, metric, stack, baseline) {
  const of = (a, b) => data.pairs.find((pair) => pair.load === load && pair.metric === metric && pair.stack === a && pair.baseline === b);
  const better = (pair) => (pair.better === null ? undefined : pair.better === stack);
  const found = of(stack, baseline);
  if (found) return { ratio: found.ratio, interval: found.interval, better: better(found) };
  const inverse = of(baseline, stack);
  if (!inverse) return null;
  const invert = (ratio) => (metric === 'right_share' ? -ratio : 1 / ratio);
  return { ratio: invert(inverse.ratio), interval: inverse.interval && [invert(inverse.interval[1]), invert(inverse.interval[0])], better: better(inverse) };
}
