// One application: its numbers, its workers, and what can be done with it.

import { useState } from 'preact/hooks';
import { bytes, number, percent, rate, seconds } from '../model/format';
import { usePolled } from '../model/polling';
import { of, post } from '../model/session';
import type { Application, Now, Rate, Worker } from '../model/types';
import { Problem, Success } from '../parts/notice';
import { RunningTable } from '../parts/running';
import { Table } from '../parts/table';
import { Text } from '../parts/text';
import { Tiles } from '../parts/tiles';
import { Reason } from '../parts/applications';
import { RefusedTable } from '../parts/refused';

interface ApplicationProps {
  name: string;
  now: Now | undefined;
  isReadOnly: boolean;
}

export function ApplicationView({ name, now, isReadOnly }: ApplicationProps) {
  const { value } = usePolled<{ workers: Worker[] }>(of(name, 'workers'), 1000);
  const application = now?.reachable ? now.status.applications[name] : undefined;
  const rates = now?.reachable ? now.rates?.applications[name] : undefined;
  const workers = value?.workers ?? [];
  const argument = encodeURIComponent(name);
  return (
    <>
      <h1><Text value={name} most={200} /></h1>
      {now?.reachable && !application && <Problem>The configuration has no such application.</Problem>}
      {application && (
        <>
          <Tiles
            tiles={[
              ...rateTiles(rates),
              { label: 'running', value: number(application.requests.active) },
              { label: 'in the queue', value: number(application.requests.waiting), isBad: (application.requests.waiting ?? 0) > 0 },
              { label: 'refused by the queue', value: number(application.requests.refused), note: 'since the start' },
              { label: 'processes', value: number(application.processes.running), note: `${application.processes.idle} idle` },
              { label: 'memory', value: bytes(workers.reduce((sum, worker) => sum + (worker.memory ?? 0), 0)), note: 'without what is shared' },
            ]}
          />
          <h2>Why this number of processes</h2>
          <p><Reason application={application} /></p>
          <PoolFacts application={application} />
        </>
      )}
      <div class="bar">
        <a class="button" href={`#/history/${argument}`}>History</a>
        <a class="button" href={`#/slow/${argument}`}>Slow requests</a>
        <a class="button" href={`#/profile/${argument}`}>Flame graph</a>
        <a class="button" href={`#/leaks/${argument}`}>Leaks</a>
        {!isReadOnly && application && !application.drained && <Restart name={name} />}
        {!isReadOnly && application && <Drain name={name} isDrained={application.drained === true} />}
      </div>
      <section>
        <h2>Requests that run</h2>
        <RunningTable running={workers.filter((worker) => worker.method).map((worker) => ({ application: name, worker }))} withApplication={false} />
      </section>
      {rates && (
        <section>
          <h2>Requests without an answer of the application</h2>
          <RefusedTable rates={rates} />
        </section>
      )}
      {application?.servers && <FastCgiServers servers={application.servers} />}
      <section>
        <h2>Workers</h2>
        <Table
          label="Workers"
          empty="It has no worker."
          rows={workers}
          keyOf={(worker, index) => `${worker.pid ?? index}`}
          columns={[
            { title: 'pid', isNumber: true, cell: (worker) => worker.pid ?? '–' },
            { title: 'state', cell: (worker) => worker.state },
            { title: 'time', isNumber: true, cell: (worker) => seconds(worker.seconds) },
            { title: 'CPU', isNumber: true, cell: (worker) => percent(worker.cpu) },
            { title: 'memory', isNumber: true, cell: (worker) => bytes(worker.memory) },
            { title: 'requests', isNumber: true, cell: (worker) => number(worker.requests) },
            { title: 'script', cell: (worker) => <Text value={worker.script} /> },
          ]}
        />
      </section>
    </>
  );
}

function rateTiles(rates: Rate | undefined) {
  if (!rates) return [];
  return [
    { label: 'requests per second', value: rate(rates.requests) },
    { label: 'errors per second', value: rate(rates.errors), isBad: rates.errors > 0 },
    { label: '95 % within', value: seconds(rates.p95), note: `median ${seconds(rates.p50)}, 99 % ${seconds(rates.p99)}` },
  ];
}

/** What the size of the pool was decided from, and what runs. */
function PoolFacts({ application }: { application: Application }) {
  const { auto } = application.processes;
  const release = Object.entries(application.generation?.release ?? {});
  return (
    <dl class="facts">
      {auto && (
        <>
          <div><dt>processors</dt><dd>{number(auto.cores, 1)}</dd></div>
          <div><dt>waiting share of its requests</dt><dd>{auto.waiting_share == null ? 'not known yet' : percent(auto.waiting_share)}</dd></div>
          <div><dt>processes that the memory allows</dt><dd>{number(auto.memory_allows)}</dd></div>
          <div><dt>most processes</dt><dd>{number(auto.max)}</dd></div>
        </>
      )}
      {application.generation && <div><dt>generation</dt><dd>{number(application.generation.number)}</dd></div>}
      {release.map(([path, target]) => (
        <div key={path}><dt>release</dt><dd><Text value={path} /> {target !== path && <>→ <Text value={target} /></>}</dd></div>
      ))}
    </dl>
  );
}

function FastCgiServers({ servers }: { servers: NonNullable<Application['servers']> }) {
  return (
    <section>
      <h2>FastCGI servers</h2>
      <Table
        label="FastCGI servers"
        empty="It has no server."
        rows={Object.entries(servers)}
        keyOf={([address]) => address}
        columns={[
          { title: 'server', cell: ([address]) => <Text value={address} /> },
          { title: 'state', cell: ([, one]) => <span class={`badge ${one.state === 'up' ? 'good' : 'bad'}`}>{one.state}</span> },
          { title: 'connections', isNumber: true, cell: ([, one]) => number(one.connections) },
          { title: 'idle', isNumber: true, cell: ([, one]) => number(one.idle) },
          { title: 'reason', cell: ([, one]) => <Text value={one.reason} /> },
        ]}
      />
    </section>
  );
}

function Restart({ name }: { name: string }) {
  return (
    <Action
      label="Restart"
      sure="Restart now"
      not="Do not restart"
      busy="Restarting…"
      done="The application has restarted. No request was lost."
      act={() => post(of(name, 'restart'))}
    />
  );
}

function Drain({ name, isDrained }: { name: string; isDrained: boolean }) {
  const act = (drain: boolean) => () => post('drain', { application: name, drain });
  if (isDrained) return <Action label="Use again" sure="Use again now" not="Do not use it" busy="Starting…" done="The application gets requests again." act={act(false)} />;
  return (
    <Action
      label="Drain"
      sure="Drain now"
      not="Do not drain"
      busy="Draining…"
      done="The application finishes its requests; others are answered 503."
      act={act(true)}
    />
  );
}

interface ActionProps {
  label: string;
  sure: string;
  not: string;
  busy: string;
  done: string;
  act: () => Promise<unknown>;
}

/** A change: a click asks first. */
function Action({ label, sure, not, busy, done, act }: ActionProps) {
  const [state, setState] = useState<'ready' | 'sure' | 'busy'>('ready');
  const [outcome, setOutcome] = useState<{ isGood: boolean; text: string } | null>(null);
  const run = async () => {
    setState('busy');
    try {
      await act();
      setOutcome({ isGood: true, text: done });
    } catch (error) {
      setOutcome({ isGood: false, text: (error as Error).message });
    }
    setState('ready');
  };
  return (
    <>
      {state === 'ready' && <button type="button" onClick={() => { setOutcome(null); setState('sure'); }}>{label}…</button>}
      {state === 'busy' && <button type="button" disabled>{busy}</button>}
      {state === 'sure' && (
        <>
          <button type="button" class="primary" onClick={() => void run()}>{sure}</button>
          <button type="button" onClick={() => setState('ready')}>{not}</button>
        </>
      )}
      {outcome && (outcome.isGood ? <Success>{outcome.text}</Success> : <Problem><Text value={outcome.text} most={600} /></Problem>)}
    </>
  );
}
