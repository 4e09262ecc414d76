// The session of this browser: a cookie that scripts cannot read, and a key in this origin's storage. Every request needs both.

const KEY = 'howdah-key';

/** An answer that is not a success. */
export class Refused extends Error {
  readonly status: number;
  /** What the server knows about the error. */
  readonly body: RefusalBody;

  constructor(status: number, body: RefusalBody) {
    super(body.detail || body.error || `The dashboard answered ${status}.`);
    this.status = status;
    this.body = body;
  }
}

export interface RefusalBody {
  error?: string;
  detail?: string | null;
  line?: number | null;
  column?: number | null;
}

/** The dashboard itself does not answer. */
export class Gone extends Error {
  constructor() {
    super('The dashboard does not answer. Start howdah dashboard again, and open the URL that it prints.');
  }
}

/** Exchanges the token of the URL's fragment for a session. Removes it from the address bar and from the history. */
export async function openFromUrl(): Promise<void> {
  const token = /^#([0-9a-f]{64})$/.exec(location.hash)?.[1];
  if (!token) return;
  history.replaceState(null, '', location.pathname + '#/now');
  await open(token);
}

export async function open(token: string): Promise<void> {
  const { key } = await send<{ key: string }>('POST', 'login', token.trim());
  localStorage.setItem(KEY, key);
}

export async function close(): Promise<void> {
  try {
    await send('POST', 'logout');
  } finally {
    localStorage.removeItem(KEY);
  }
}

export function read<T>(path: string, signal?: AbortSignal): Promise<T> {
  return send<T>('GET', path, undefined, signal);
}

export function post<T>(path: string, body: unknown = {}, signal?: AbortSignal): Promise<T> {
  return send<T>('POST', path, typeof body === 'string' ? body : JSON.stringify(body), signal);
}

export function put<T>(path: string, body: unknown): Promise<T> {
  return send<T>('PUT', path, JSON.stringify(body));
}

/** The path of an application's call. */
export function of(application: string, call: string): string {
  return `applications/${encodeURIComponent(application)}/${call}`;
}

async function send<T>(method: string, path: string, body?: string, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { 'x-howdah-key': localStorage.getItem(KEY) ?? '' };
  let response: Response;
  try {
    response = await fetch(`/api/${path}`, { method, headers, body: body ?? null, signal: signal ?? null, cache: 'no-store' });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Gone();
  }
  const value = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, value);
  return value as T;
}
