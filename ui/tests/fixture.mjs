// Fixed answers of the dashboard's server, for the golden images: every view with content, and the same pixels each time.

/** The time of the browser. */
export const NOW = Date.UTC(2026, 2, 1, 12, 0, 0);
const seconds = NOW / 1000;
const HOSTILE = '<img src=x onerror=alert(1)>\u001b[31m';

const auto = (why) => ({ why, cores: 4, waiting_share: 0.62, memory_allows: 57, max: 57 });
const generation = (number, release) => ({ number, release: { '/srv/shop/current/public': `/srv/shop/releases/${release}/public` } });
const application = (running, waiting, refused, processes, more) => ({
  processes: { running: processes, starting: 0, idle: Math.max(processes - running, 0) },
  requests: { active: running, waiting, refused },
  ...more,
});
const rate = (requests, errors, p50, p95, p99, refused = {}, refused_total = {}) => ({ requests, errors, p50, p95, p99, refused, refused_total });

const status = {
  connections: { accepted: 90412, active: 14, idle: 31, closed: 90367 },
  requests: { total: 481_516 },
  applications: {
    blog: application(1, 0, 0, 2, { generation: generation(3, 7) }),
    [HOSTILE]: application(0, 0, 0, 0, { failure: `the root does not exist: ${HOSTILE}` }),
    shop: application(9, 3, 17, 12, {
      processes: { running: 12, starting: 1, idle: 3, auto: auto('12 processes: requests wait for 62 % of their time, and 4 cores are available') },
      generation: generation(8, 42),
    }),
  },
  draining: { shop: { generations: 1, processes: 2 } },
  upstreams: {
    search: { servers: { '10.0.0.5:8080': { state: 'up', active: 4 }, '10.0.0.6:8080': { state: 'drained', active: 2 }, '10.0.0.7:8080': { state: 'down', active: 0, reason: 'no connection: connection refused' } } },
  },
  certificates: { 'shop.example': { state: 'valid', expires: 'May 30 12:00:00 2026 GMT', renewal: 'Apr 30 12:00:00 2026 GMT' } },
};
const worker = (pid, seconds, cpu, url, more = {}) => ({
  pid, state: seconds == null ? 'idle' : 'busy', running: seconds == null ? 0 : 1, method: seconds == null ? null : 'GET', url, script: '/srv/shop/releases/42/public/index.php',
  seconds, cpu, memory: 8_400_000 + pid, requests: 3000 + pid, ...more,
});
const workers = [
  worker(701, 12.4, 0.01, '/report?year=2026'), worker(702, 0.81, 0.97, '/search?q=red+shoes'), worker(703, 0.2, 0.4, `/${HOSTILE}`), worker(704, null, 0, null),
];
const now = {
  time: NOW, reachable: true, status, workers: { shop: workers, blog: [worker(801, 0.05, 0.9, '/2026/02/hello')] },
  rates: {
    seconds: 10,
    applications: {
      '': rate(120.5, 0, 0.0008, 0.004, 0.009),
      blog: rate(8.2, 0, 0.021, 0.08, 0.2),
      shop: rate(214.6, 0.4, 0.031, 0.42, 1.9, { queue: 0.3 }, { queue: 17, client_left: 5, timeout: 2 }),
    },
  },
};

const POINTS = 120;
const wave = (mean, swing, period) => Array.from({ length: POINTS }, (_, at) => (at < 12 ? null : mean + swing * Math.sin((at / period) * 2 * Math.PI)));
const answered = (answered, errors, p50, p95, p99, refused = {}) => ({ answered, errors, p50, p95, p99, refused });
const history = {
  times: Array.from({ length: POINTS }, (_, at) => seconds - (POINTS - 1 - at) * 30),
  step: 30,
  application: null,
  route: null,
  connections: wave(42, 8, 30),
  requests: wave(330, 60, 40),
  series: {
    finished: wave(214, 50, 40), refused: wave(0.5, 0.5, 20), active: wave(9, 3, 25), waiting: wave(2, 2, 25), processes: wave(11, 2, 60), seconds: wave(0.04, 0.01, 30),
    answered: wave(330, 60, 40), errors: wave(0.4, 0.4, 15), p50: wave(0.03, 0.01, 30), p95: wave(0.4, 0.1, 30), p99: wave(1.8, 0.6, 30), cpu: wave(2.1, 0.7, 40), memory: wave(96e6, 9e6, 50),
  },
  refused_by: { client_left: wave(0.1, 0.1, 20), queue: wave(0.5, 0.5, 20) },
  applications: [
    { name: 'shop', finished: 640_000, ...answered(641_020, 1200, 0.031, 0.42, 1.9, { queue: 17, client_left: 5 }) },
    { name: '', finished: 0, ...answered(350_000, 3, 0.0008, 0.004, 0.009) },
    { name: 'blog', finished: 24_000, ...answered(24_004, 0, 0.021, 0.08, 0.2) },
  ],
  routes: [
    { application: 'shop', route: 'routes/shop/1', ...answered(600_000, 20, 0.03, 0.3, 0.9) },
    { application: '', route: 'routes/0', ...answered(350_000, 3, 0.0008, 0.004, 0.009) },
    { application: 'shop', route: 'routes/shop/0', ...answered(41_020, 1180, 0.4, 1.9, 2.4, { queue: 17 }) },
  ],
  marks: [
    { time: seconds - 3200, kind: 'dashboard', application: null, text: 'the dashboard was started' },
    { time: seconds - 2400, kind: 'configuration', application: null, text: 'the configuration was changed',
      changes: [{ path: 'applications/shop/limits/timeout', before: '10', after: '30' }, { path: 'settings/http/max_body_size', before: null, after: '16777216' }] },
    { time: seconds - 1500, kind: 'deploy', application: 'shop', text: 'a new release',
      changes: [{ path: '/srv/shop/current/public', before: '/srv/shop/releases/41/public', after: '/srv/shop/releases/42/public' }] },
    { time: seconds - 600, kind: 'lost', application: null, text: 'the router does not answer' },
    { time: seconds - 590, kind: 'found', application: null, text: 'howdah answers again' },
  ],
};

const slow = {
  requests: [[
    { time: '2026-03-01T11:58:12.380Z', request: '1', event: 'sample', method: 'GET', url: '/report?year=2026', script: '/srv/shop/index.php', elapsed: 1, pid: 701,
      native: { function: 'PDOStatement::execute', waits_in: 'poll' },
      backtrace: [{ class: 'PDOStatement', function: 'execute' }, { class: 'App\\Report', function: 'rows', file: '/srv/shop/src/Report.php', line: 88 }, { file: '/srv/shop/index.php', line: 12 }] },
    { time: '2026-03-01T11:58:16.380Z', request: '1', event: 'end', method: 'GET', url: '/report?year=2026', script: '/srv/shop/index.php', elapsed: 5.001, cpu: 0.112,
      memory: 2_200_000, memory_peak: 3_100_000, pid: 701, counters: { mysql_queries: 412, included_files: 61 } },
  ], [
    // In async mode.
    { time: '2026-03-01T11:57:02.100Z', request: '2', event: 'end', method: 'GET', url: '/chat/events', script: '/srv/chat/server.php', elapsed: 1.7, memory: 4_100_000, memory_peak: 5_000_000, pid: 702, held_requests: 3 },
  ]],
};

/** Two profiles: the second one has more of `Twig\Template::render`. */
const profile = (turn) => ({
  samples: 200, workers: 2, complete: true,
  frames: ['{main}', 'App\\Kernel::handle', 'App\\Report::rows', 'PDOStatement::execute', '[poll]', 'Twig\\Template::render', 'usort'].map((name) => ({ name, file: name === '{main}' ? 'index.php' : '' })),
  stacks: turn === 0 ? [[[0, 1, 2, 3, 4], 110], [[0, 1, 5], 40], [[0, 1, 2, 6], 50]] : [[[0, 1, 2, 3, 4], 40], [[0, 1, 5], 130], [[0, 1, 2, 6], 30]],
});
const growth = (mean, leak = false) => ({ median: mean, mean, low: mean * 0.9, high: mean * 1.1, leak });
const leaks = {
  requests: 4200, workers: 2, complete: true,
  routes: [
    { route: 'GET /cart', requests: 1200, leak: true, memory: growth(2048, true), malloc: growth(96), descriptors: growth(0), objects: { 'App\\Cart\\Item': growth(3, true), Closure: growth(1, true) } },
    { route: 'GET /', requests: 3000, leak: false, memory: growth(0), malloc: growth(0), descriptors: growth(0), objects: {} },
  ],
};
const text = JSON.stringify({
  listeners: { '*:80': { pass: 'routes' } },
  routes: [{ match: { uri: '/search/*' }, action: { pass: 'upstreams/search' } }, { action: { pass: 'applications/shop' } }],
  applications: { shop: { type: 'php', root: '/srv/shop/current/public', limits: { timeout: 30 } } },
}, null, 2);
const chain = (name, until) => [{ subject: { common_name: name, alt_names: [name] }, issuer: { common_name: 'An authority' }, validity: { since: 'Jan  1 00:00:00 2026 GMT', until } }];
const certificates = {
  old: { key: 'RSA (2048 bits)', chain: chain('old.example', 'Feb 20 12:00:00 2026 GMT') },
  shop: { key: 'EC (256 bits)', chain: chain('shop.example', 'May 30 12:00:00 2026 GMT') },
};

/** The answer to a call, without `/api/` and its query; `undefined` is the server's own. */
export function answerTo(path, state) {
  switch (path) {
    case 'about': return { version: '0.1.0', control: 'unix:/run/howdah/control.sock', read_only: false, history: { place: '/var/lib/howdah/dashboard', is_kept: true, hours: 24 } };
    case 'now': return state.isGone ? { time: NOW, reachable: false, since: NOW - 90_000, reason: 'no howdah listens on unix:/run/howdah/control.sock' } : now;
    case 'history': return history;
    case 'config': return { text, etag: '"1"' };
    case 'certificates': return certificates;
    case 'applications/shop/workers': return { workers };
    case 'applications/shop/slow': return slow;
    case 'applications/shop/profile': return profile(state.profiles++);
    case 'applications/shop/leaks': return leaks;
    case 'applications/shop/stack': return { frames: [{ name: 'usleep', file: '', line: 0 }, { name: 'wait_for_the_report', file: '/srv/shop/report.php', line: 7 }, { name: '{main}', file: '/srv/shop/index.php', line: 12 }] };
    default: return undefined;
  }
}
