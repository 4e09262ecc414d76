// Slow requests with their stacks.

import { useState } from 'preact/hooks';
import { bytes, number, seconds } from '../model/format';
import { usePolled } from '../model/polling';
import { of, Refused } from '../model/session';
import type { SlowLine } from '../model/types';
import { Choice } from '../parts/choice';
import { Hint, Problem } from '../parts/notice';
import { Stack } from '../parts/stack';
import { Text } from '../parts/text';

export function SlowView({ names, chosen }: { names: string[]; chosen?: string | undefined }) {
  const [name, setName] = useState(chosen ?? names[0] ?? '');
  return (
    <>
      <h1>Slow requests</h1>
      <div class="bar">
        <Choice label="Application" value={name} options={names.map((name) => ({ value: name, label: name }))} onChange={setName} />
      </div>
      {name ? <SlowRequests application={name} /> : <p class="empty">The configuration has no application.</p>}
    </>
  );
}

export function SlowRequests({ application }: { application: string }) {
  const { value, error } = usePolled<{ requests: SlowLine[][] }>(of(application, 'slow'), 5000);
  if (error instanceof Refused && error.status === 404) return <Hint>{error.message}</Hint>;
  if (error) return <Problem>{error.message}</Problem>;
  if (!value) return <p class="empty">Reading…</p>;
  if (value.requests.length === 0) return <p class="empty">No request has been slow.</p>;
  return (
    <ul class="slow">
      {value.requests.map((lines, index) => (
        <SlowRequest key={`${lines[0]?.time} ${lines[0]?.pid} ${index}`} lines={lines} />
      ))}
    </ul>
  );
}

function SlowRequest({ lines }: { lines: SlowLine[] }) {
  const first = lines[0] ?? {};
  const last = lines[lines.length - 1] ?? {};
  const isEnded = lines.some((line) => line.event === 'end');
  const isLimited = lines.some((line) => line.event === 'limit');
  const samples = lines.filter((line) => line.backtrace || line.native);
  const counters = Object.entries(last.counters ?? {}).filter(([, count]) => typeof count === 'number' && count > 0);
  return (
    <li>
      <details>
        <summary>
          <span class="when">{(first.time ?? '').replace('T', ' ').replace(/\.\d+Z$/, ' UTC')}</span>
          <b class="long">
            {isEnded ? '' : '≥ '}
            {seconds(last.elapsed)}
          </b>
          <span class="request">
            <b>{last.method}</b> {String(last.url ?? '').length > 160 ? `${last.url?.slice(0, 160)}…` : <Text value={last.url} />}
          </span>
          {isLimited && <span class="badge bad">ended by limits/timeout</span>}
        </summary>
        <p>
          <Text value={last.url} most={400} /> · <Text value={last.script} /> · worker {last.pid} · {seconds(last.cpu)} of CPU · memory{' '}
          {bytes(last.memory)}, peak {bytes(last.memory_peak)}
          {counters.map(([name, count]) => ` · ${name.replaceAll('_', ' ')} ${number(count)}`)}
        </p>
        {samples.map((line, index) => (
          <section key={index}>
            <h3>after {seconds(line.elapsed)}</h3>
            <Stack frames={framesOf(line)} />
          </section>
        ))}
      </details>
    </li>
  );
}

function framesOf(line: SlowLine) {
  const native = line.native ? [{ name: line.waits_in ? `${line.native} in ${line.waits_in}` : line.native }] : [];
  const frames = (Array.isArray(line.backtrace) ? line.backtrace : []).map((frame) => ({
    name: [frame.class, frame.function].filter(Boolean).join('::') || '{main}',
    file: frame.file,
    line: frame.line,
  }));
  return [...native, ...frames];
}
