// The parts of charts: SVG elements, the looks of a stack, axes, lines, and the line of text that shows the values at a place.

const SVG = 'http://www.w3.org/2000/svg';
const COLOURS = 7;
// With 7 colours, 7 marks and 4 dashes, 28 stacks look different.
const DASHES = ['', '7 4', '2 4', '10 4 2 4'];

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const colour = (stack) => `var(--s${stack % COLOURS})`;
const dashes = (stack) => DASHES[stack % DASHES.length];

// The mark of a stack: a shape around a place.
function markShape(stack, x, y, size = 4, hollow = false) {
  const s = size;
  const path = [
    `M${-s} 0A${s} ${s} 0 1 1 ${s} 0A${s} ${s} 0 1 1 ${-s} 0Z`,
    `M${-s} ${-s}H${s}V${s}H${-s}Z`,
    `M0 ${-1.2 * s}L${1.15 * s} ${0.9 * s}H${-1.15 * s}Z`,
    `M0 ${-1.35 * s}L${1.35 * s} 0L0 ${1.35 * s}L${-1.35 * s} 0Z`,
    `M0 ${1.2 * s}L${1.15 * s} ${-0.9 * s}H${-1.15 * s}Z`,
    `M${-s} ${-0.4 * s}H${-0.4 * s}V${-s}H${0.4 * s}V${-0.4 * s}H${s}V${0.4 * s}H${0.4 * s}V${s}H${-0.4 * s}V${0.4 * s}H${-s}Z`,
    `M0 ${-1.3 * s}L${1.2 * s} ${-0.3 * s}L${0.75 * s} ${1.1 * s}H${-0.75 * s}L${-1.2 * s} ${-0.3 * s}Z`,
  ][stack % COLOURS];
  return svg('path', {
    d: path, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, fill: hollow ? 'var(--paper)' : colour(stack), stroke: colour(stack),
    'stroke-width': 1.3,
  });
}

// The line and the mark of a stack, for tables and legends.
function fillMark(element, stack) {
  element.replaceChildren(
    svg('line', { class: 'series', x1: 1, x2: 33, y1: 6, y2: 6, stroke: colour(stack), 'stroke-dasharray': dashes(stack) }),
    markShape(stack, 17, 6),
  );
}

function markOf(stack) {
  const element = svg('svg', { class: 'mark', width: 34, height: 12, viewBox: '0 0 34 12', 'aria-hidden': 'true' });
  fillMark(element, stack);
  return element;
}

// Lines and labels of a vertical axis.
function drawY(parent, scale, left, right, label = tickLabel) {
  for (const tick of scale.ticks) {
    const y = scale.at(tick).toFixed(1);
    parent.append(svg('line', { class: tick === 0 ? 'axis' : 'grid', x1: left, x2: right, y1: y, y2: y }));
    parent.append(svg('text', { x: left - 6, y: Number(y) + 4, 'text-anchor': 'end' }, label(tick)));
  }
}

// Labels of a horizontal axis, and its lines if `top` is given.
function drawX(parent, scale, bottom, top, label = tickLabel) {
  for (const tick of scale.ticks) {
    const x = scale.at(tick).toFixed(1);
    if (top !== undefined) parent.append(svg('line', { class: 'grid', x1: x, x2: x, y1: top, y2: bottom }));
    parent.append(svg('text', { x, y: bottom + 16, 'text-anchor': 'middle' }, label(tick)));
  }
}

// A line through points, interrupted where a value is missing, with marks at some distance.
function drawLine(parent, stack, points, { every = 70, isDashed = true } = {}) {
  let path = '';
  let before = false;
  let marked = -Infinity;
  const marks = [];
  points.forEach(([x, y], index) => {
    const known = y !== null && Number.isFinite(y);
    if (known) {
      const isAlone = !before && !Number.isFinite(points[index + 1]?.[1] ?? NaN);
      path += `${before ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}${isAlone ? 'h0.1' : ''}`;
      if (x - marked >= every) {
        // Marks of different stacks are not at the same places, so that one does not hide another.
        marked = marked === -Infinity ? x - every + 14 + (stack * 17) % every : x;
        if (marked === x || every === 0) marks.push(markShape(stack, x, y, 3.6));
      }
    }
    before = known;
  });
  if (!path) return;
  parent.append(svg('path', { class: 'series', d: path, stroke: colour(stack), 'stroke-dasharray': isDashed ? dashes(stack) : '' }), ...marks);
}

// A chart in a box: an SVG that has a name, can have the focus, and shows its values at a place in a line of text.
//
// `places` are the horizontal places that the cursor can have; `describe(index)` gives the line's parts.
function frame(parent, { width, height, name, places = [], describe, top = 0, bottom = height }) {
  const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': name });
  const box = html('div', { class: 'chart' }, picture);
  parent.append(box);
  if (!describe || !places.length) return picture;
  picture.setAttribute('tabindex', '0');
  picture.setAttribute('aria-label', `${name}. The arrow keys move a cursor.`);
  const readout = html('div', { class: 'readout', 'aria-live': 'polite' });
  parent.append(readout);
  const cursor = svg('line', { class: 'cursor', y1: top, y2: bottom, visibility: 'hidden' });
  let at = -1;
  const show = (index) => {
    at = Math.max(0, Math.min(places.length - 1, index));
    const x = places[at].toFixed(1);
    for (const [key, value] of Object.entries({ x1: x, x2: x, visibility: 'visible' })) cursor.setAttribute(key, value);
    picture.append(cursor);
    readout.replaceChildren(...describe(at));
  };
  const nearest = (event) => {
    const bounds = picture.getBoundingClientRect();
    const x = (event.clientX - bounds.left) * width / bounds.width;
    let best = 0;
    places.forEach((place, index) => { if (Math.abs(place - x) < Math.abs(places[best] - x)) best = index; });
    show(best);
  };
  picture.addEventListener('pointermove', nearest);
  picture.addEventListener('pointerdown', nearest);
  picture.addEventListener('keydown', (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    show(at < 0 ? (event.key === 'End' ? places.length - 1 : 0) : at + steps[event.key]);
  });
  readout.append(html('span', { class: 'noise' }, 'Touch the chart, or use the arrow keys, to read values.'));
  return picture;
}

// A stack with its values, for the line of text.
function reading(stack, label, text) {
  return html('span', {}, markOf(stack), `${label}: ${text}`);
}
