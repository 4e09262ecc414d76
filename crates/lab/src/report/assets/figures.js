// Figures and axes: the same words as in the tables.

const NOTHING = '–';

function figure(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  const size = Math.abs(value);
  if (size < 0.0005) return '0';
  if (size < 1) return value.toFixed(3);
  if (size < 9.995) return value.toFixed(2);
  if (size < 99.95) return value.toFixed(1);
  return Math.round(value).toLocaleString('en-US');
}

// The label of a tick: without zeros that mean nothing.
function tickLabel(value) {
  if (value === 0) return '0';
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString('en-US');
  return String(Number(value.toPrecision(6)));
}

// Round values from 0 or above that cover the domain, about `count` of them.
function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let number = Math.ceil(low / step - 1e-9); number * step <= high + step * 1e-6; number++) ticks.push(number * step);
  return ticks;
}

function logTicks(low, high, count) {
  const decades = Math.log10(high / low);
  const factors = decades > count ? [1] : decades > count / 2.5 ? [1, 3] : [1, 2, 5];
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of factors) {
      const tick = factor * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks.length > 1 ? ticks : [low, high];
}

// A scale: `at(value)` is its place between `from` and `to`; `back(place)` is the value there.
function linearScale(low, high, from, to, count = 5) {
  const span = high - low || 1;
  return {
    at: (value) => from + (to - from) * (value - low) / span,
    back: (place) => low + span * (place - from) / (to - from),
    ticks: linearTicks(low, high, count),
  };
}

function logScale(low, high, from, to, count = 5) {
  const [bottom, top] = [Math.log(low), Math.log(high)];
  const span = top - bottom || 1;
  return {
    at: (value) => from + (to - from) * (Math.log(Math.max(value, low)) - bottom) / span,
    back: (place) => Math.exp(bottom + span * (place - from) / (to - from)),
    ticks: logTicks(low, high, count),
  };
}

// A scale for values that begin at 0, with room above the highest one; or a logarithmic one around them.
function scaleFor(values, isLog, from, to, count) {
  const known = values.filter((value) => Number.isFinite(value) && (!isLog || value > 0));
  if (isLog && known.length) {
    const [low, high] = [Math.min(...known), Math.max(...known)];
    return logScale(low / 1.15, Math.max(high * 1.15, low * 1.5), from, to, count);
  }
  const high = known.reduce((most, value) => Math.max(most, value), 0);
  return linearScale(0, high ? high * 1.08 : 1, from, to, count);
}

// The figure of a metric in its table's unit.
const METRICS = {
  requests_per_second: { name: 'Requests/s', more: true },
  requests_per_cpu_second: { name: 'Requests per CPU second', more: true },
  right_share: { name: 'HTTP OK', more: true },
  latency_mean: { name: 'Mean time' },
  latency_p50: { name: 'p50' },
  latency_p95: { name: 'p95' },
  latency_p99: { name: 'p99' },
  latency_p999: { name: 'p99.9' },
  cpu_percent: { name: 'CPU' },
  pss_bytes: { name: 'Memory' },
};

// `+45 %`, `−31 %`, `×2.31`; for shares, in percentage points.
function signed(metric, ratio) {
  if (metric === 'right_share') return `${ratio < 0 ? '−' : '+'}${Number((Math.abs(ratio) * 100).toFixed(3))} pp`;
  if (ratio >= 2) return `×${figure(ratio)}`;
  const percent = Math.abs(ratio - 1) * 100;
  return `${ratio < 1 ? '−' : '+'}${percent < 0.005 ? '0' : percent < 0.995 ? percent.toFixed(2) : percent < 9.95 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}
