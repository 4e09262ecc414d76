// What the dashboard's server answers. Members of the control API keep their names; docs/control-api.md explains them.

export interface About {
  version: string;
  control: string;
  read_only: boolean;
  history: { place: string; is_kept: boolean; hours: number };
}

export type Now = { time: number } & (
  | { reachable: true; status: Status; workers: Record<string, Worker[]> }
  | { reachable: false; reason: string; since: number }
);

export interface Status {
  modules?: { php?: Module | Module[] };
  connections: { accepted: number; active: number; idle: number; closed: number };
  requests: { total: number };
  applications: Record<string, Application>;
  draining?: Record<string, { generations: number; processes: number }>;
  upstreams?: Record<string, { servers: Record<string, { state: string; reason?: string }> }>;
}

export interface Module {
  version: string;
  lib: string;
}

export interface Application {
  processes: { running: number; starting: number; idle: number; auto?: Auto };
  requests: { active: number; waiting?: number; refused?: number };
  failure?: string;
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
  /** These four are known if howdah has metrics. */
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
  series: Series;
  applications: { name: string; finished: number; refused: number }[];
  marks: Mark[];
}

export interface Mark {
  time: number;
  kind: string;
  application?: string | null;
  text: string;
  changes?: { path: string; before: string | null; after: string | null }[];
}
