// Routes that keep memory, in worker mode.

import { useRef, useState } from 'preact/hooks';
import { bytes, number, visible } from '../model/format';
import { of, post } from '../model/session';
import type { Leaks } from '../model/types';
import { Choice } from '../parts/choice';
import { Problem, Success } from '../parts/notice';
import { Table } from '../parts/table';
import { Text } from '../parts/text';

const TIMES = [10, 30, 120].map((seconds) => ({ value: String(seconds), label: `${seconds} seconds` }));
const MOST_CLASSES = 8;

export function LeaksView({ names, chosen }: { names: string[]; chosen?: string | undefined }) {
  const [name, setName] = useState(chosen ?? names[0] ?? '');
  const [time, setTime] = useState('30');
  const [report, setReport] = useState<Leaks | null>(null);
  const [problem, setProblem] = useState('');
  const controller = useRef<AbortController | null>(null);
  const [isRunning, setRunning] = useState(false);

  const start = async () => {
    controller.current = new AbortController();
    setRunning(true);
    setProblem('');
    setReport(null);
    try {
      setReport(await post<Leaks>(of(name, 'leaks'), { seconds: Number(time) }, controller.current.signal));
    } catch (error) {
      if (!controller.current.signal.aborted) setProblem((error as Error).message);
    }
    setRunning(false);
  };
  const leaking = report?.routes.filter((route) => route.leak) ?? [];
  return (
    <>
      <h1>Leaks</h1>
      <p>Finds the routes of an application in worker mode that keep memory with each request. Requests must run meanwhile.</p>
      <div class="bar">
        <Choice label="Application" value={name} options={names.map((name) => ({ value: name, label: name }))} onChange={setName} isDisabled={isRunning} />
        <Choice label="Duration" value={time} options={TIMES} onChange={setTime} isDisabled={isRunning} />
        {isRunning ? (
          <button type="button" onClick={() => controller.current?.abort()}>Cancel</button>
        ) : (
          <button type="button" class="primary" disabled={!name} onClick={() => void start()}>Start</button>
        )}
        {isRunning && <span role="status">Measuring…</span>}
      </div>
      {problem && <Problem>{visible(problem)}</Problem>}
      {report && (
        <>
          {leaking.length === 0 && <Success>No route leaks: {number(report.requests)} requests of {number(report.workers)} workers.</Success>}
          <Table
            label="Routes"
            empty="No route."
            rows={report.routes}
            keyOf={(route) => route.route}
            columns={[
              { title: 'route', cell: (route) => <Text value={route.route} /> },
              { title: 'verdict', cell: (route) => (route.leak ? <span class="badge bad">leaks</span> : '') },
              { title: 'requests', isNumber: true, cell: (route) => number(route.requests) },
              { title: "PHP's memory", isNumber: true, cell: (route) => signed(route.memory.mean) },
              { title: '95 %', isNumber: true, cell: (route) => (route.memory.low == null ? '–' : `${signed(route.memory.low)} to ${signed(route.memory.high)}`) },
              { title: 'malloc', isNumber: true, cell: (route) => signed(route.malloc.mean) },
              { title: 'descriptors', isNumber: true, cell: (route) => number(route.descriptors.mean, 2) },
            ]}
          />
          {leaking.map((route) => (
            <section key={route.route}>
              <h2>Objects that stay after each request of <Text value={route.route} /></h2>
              <ul>
                {Object.entries(route.objects)
                  .sort(([, one], [, other]) => other.mean - one.mean)
                  .slice(0, MOST_CLASSES)
                  .map(([name, growth]) => (
                    <li key={name}>+{number(growth.mean, 2)} <code>{visible(name)}</code></li>
                  ))}
              </ul>
            </section>
          ))}
        </>
      )}
    </>
  );
}

function signed(count: number | null): string {
  if (count == null) return '–';
  return `${count > 0.5 ? '+' : ''}${bytes(Math.abs(count) < 0.5 ? 0 : count)}`;
}
