// What the dashboard's server answers. Members of the control API keep their names; docs/control-api.md explains them.

export interface About {
  version: string;
  control: string;
  read_only: boolean;
  history: { place: string; is_kept: boolean; hours: number };
}

export type Now = { time: number } & (
  | { reachable: true; status: Status; workers: Record<string, Worker[]>; rates?: Rates | null }
  | { reachable: false; reason: string; since: number }
);

/** Of the last seconds; a howdah without metrics has none. */
export interface Rates {
  seconds: number;
  /** The empty name stands for requests that no application has answered. */
  applications: Record<string, Rate>;
}

export interface Rate {
  requests: number;
  errors: number;
  p50: number | null;
  p95: number | null;
  p99: number | null;
  /** Per second, by cause. */
  refused: Record<string, number>;
  /** Since the start, by cause. */
  refused_total: Record<string, number> | null;
}

export interface Status {
  modules?: { php?: Module | Module[] };
  connections: { accepted: number; active: number; idle: number; closed: number };
  requests: { total: number };
  applications: Record<string, Application>;
  draining?: Record<string, { generations: number; processes: number }>;
  upstreams?: Record<string, { servers: Record<string, UpstreamServer> }>;
  certificates?: Record<string, Domain>;
}

export interface UpstreamServer {
  state: string;
  active?: number;
  reason?: string;
}

/** A domain whose certificate howdah obtains. */
export interface Domain {
  state: string;
  expires?: string;
  renewal?: string;
  last_error?: string;
}

export interface Module {
  version: string;
  lib: string;
}

export interface Application {
  processes: { running: number; starting: number; idle: number; auto?: Auto };
  requests: { active: number; waiting?: number; refused?: number };
  generation?: { number: number; release: Record<string, string> };
  /** The addresses of a FastCGI application. */
  servers?: Record<string, { state: string; connections: number; idle: number; reason?: string }>;
  failure?: string;
  /** It drains: its requests are answered 503. */
  drained?: boolean;
}

export interface Auto {
  why: string;
  cores: number;
  waiting_share: number | null;
  memory_allows: number | null;
  max: number;
}

export interface Worker {
  pid: number | null;
  state: string;
  running: number | null;
  method: string | null;
  url: string | null;
  script: string | null;
  seconds: number | null;
  cpu: number | null;
  memory: number | null;
  requests: number | null;
}

export interface Frame {
  name: string;
  file: string;
  line: number;
}

export interface SlowLine {
  time?: string;
  event?: string;
  method?: string;
  url?: string;
  script?: string;
  elapsed?: number;
  cpu?: number;
  memory?: number;
  memory_peak?: number;
  pid?: number;
  /** In async mode, in place of `cpu` and `counters`. */
  held_requests?: number;
  native?: { function?: string; waits_in?: string } | null;
  backtrace?: { function?: string; class?: string; file?: string; line?: number }[];
  counters?: Record<string, number>;
}

export interface ProfilePart {
  samples: number;
  workers: number;
  frames: { name: string; file: string }[];
  /** The indexes of a stack's frames, outermost first, and its number of samples. */
  stacks: [number[], number][];
  complete: boolean;
}

export interface Growth {
  median: number;
  mean: number;
  low: number | null;
  high: number | null;
  leak: boolean;
}

export interface Leaks {
  requests: number;
  workers: number;
  complete: boolean;
  routes: {
    route: string;
    requests: number;
    leak: boolean;
    memory: Growth;
    malloc: Growth;
    descriptors: Growth;
    objects: Record<string, Growth>;
  }[];
}

export interface Checked {
  valid: boolean;
  warnings?: string[];
  error?: string;
  detail?: string | null;
  line?: number | null;
  column?: number | null;
}

export interface Series {
  finished: (number | null)[];
  refused: (number | null)[];
  active: (number | null)[];
  waiting: (number | null)[];
  processes: (number | null)[];
  seconds: (number | null)[];
  /** These are known if howdah has metrics. */
  answered: (number | null)[];
  errors: (number | null)[];
  p50: (number | null)[];
  p95: (number | null)[];
  p99: (number | null)[];
  cpu: (number | null)[];
  memory: (number | null)[];
}

export interface History {
  /** The ends of the intervals, in seconds since 1970. */
  times: number[];
  step: number;
  connections: (number | null)[];
  requests: (number | null)[];
  application: string | null;
  route: string | null;
  series: Series;
  /** Per second, by cause. */
  refused_by: Record<string, (number | null)[]>;
  applications: (Answered & { name: string; finished: number })[];
  routes: (Answered & { application: string; route: string })[];
  marks: Mark[];
}

/** All answers of the time that is shown. */
export interface Answered {
  answered: number;
  errors: number;
  refused: Record<string, number>;
  p50: number | null;
  p95: number | null;
  p99: number | null;
}

export interface Mark {
  time: number;
  kind: string;
  application?: string | null;
  text: string;
  changes?: { path: string; before: string | null; after: string | null }[];
}
