// Slow requests with their stacks.

import { useState } from 'preact/hooks';
import { bytes, number, seconds, visible } from '../model/format';
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
  const samples = lines.filter((line) => line.event === 'sample' || line.event === 'limit');
  const counters = Object.entries(last.counters ?? {}).filter(([, count]) => typeof count === 'number' && count > 0);
  const url = visible(last.url);
  return (
    <li>
      <details>
        <summary>
          <span class="when">{visible(first.time).slice(0, 40).replace('T', ' ').replace(/\.\d+Z$/, ' UTC')}</span>
          <b class="long">
            {isEnded ? '' : '≥ '}
            {seconds(last.elapsed)}
          </b>
          <span class="request">
            <b>{visible(last.method).slice(0, 20)}</b> {url.length > 160 ? `${url.slice(0, 160)}…` : url}
          </span>
          {isLimited && <span class="badge bad">ended by limits/timeout</span>}
        </summary>
        <p>
          <Text value={last.url} most={400} /> · <Text value={last.script} /> · worker {visible(String(last.pid ?? '–'))}
          {typeof last.held_requests === 'number' ? `, which held ${number(last.held_requests)} requests` : ` · ${seconds(last.cpu)} of CPU`} · memory{' '}
          {bytes(last.memory)}, peak {bytes(last.memory_peak)}
          {counters.map(([name, count]) => ` · ${visible(name).replaceAll('_', ' ')} ${number(count)}`)}
        </p>
        {samples.map((line, index) => (
          <section key={index}>
            <h2 class="after">after {seconds(line.elapsed)}</h2>
            <Stack frames={framesOf(line)} />
          </section>
        ))}
      </details>
    </li>
  );
}

/** The innermost function waits in a system call, if it is one of PHP's functions in C. */
function framesOf(line: SlowLine) {
  const frames = Array.isArray(line.backtrace) ? line.backtrace : [];
  const wait = line.native?.waits_in ? ` in ${line.native.waits_in}` : '';
  return frames.map((frame, depth) => ({
    name: ([frame?.class, frame?.function].filter(Boolean).join('::') || '{main}') + (depth === 0 ? wait : ''),
    file: frame?.file,
    line: frame?.line,
  }));
}
