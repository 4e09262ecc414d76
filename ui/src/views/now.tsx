// What runs now.

import { Text } from '../parts/text';
import { RunningTable, runningOf } from '../parts/running';
import { Table } from '../parts/table';
import { Tiles } from '../parts/tiles';
import { Problem } from '../parts/notice';
import { number, rate } from '../model/format';
import type { Application, Now, Status } from '../model/types';

export function NowView({ now, former }: { now: Now; former?: Now | undefined }) {
  if (!now.reachable) return <h1>Now</h1>;
  const { status, workers } = now;
  const running = runningOf(workers);
  return (
    <>
      <h1>Now</h1>
      <Tiles tiles={tiles(status, rateBetween(former, now))} />
      <section>
        <h2>Requests that run</h2>
        <RunningTable running={running} withApplication={Object.keys(status.applications).length !== 1} />
      </section>
      <section>
        <h2>Applications</h2>
        <Applications applications={status.applications} />
      </section>
      <Draining status={status} />
      <Upstreams status={status} />
    </>
  );
}

function tiles(status: Status, perSecond: number | null) {
  const applications = Object.values(status.applications);
  const sum = (of: (application: Application) => number) => applications.reduce((total, one) => total + of(one), 0);
  const waiting = sum((one) => one.requests.waiting ?? 0);
  const failed = applications.filter((one) => one.failure).length;
  return [
    { label: 'requests per second', value: rate(perSecond) },
    { label: 'running', value: number(sum((one) => one.requests.active)) },
    { label: 'in the queue', value: number(waiting), isBad: waiting > 0 },
    { label: 'refused', value: number(sum((one) => one.requests.refused ?? 0)), note: 'since the start' },
    {
      label: 'PHP processes',
      value: number(sum((one) => one.processes.running)),
      note: `${number(sum((one) => one.processes.idle))} idle`,
    },
    { label: 'connections', value: number(status.connections.active), note: `and ${number(status.connections.idle)} idle` },
    ...(failed ? [{ label: 'do not start', value: number(failed), isBad: true }] : []),
  ];
}

/** Of all requests; `null` until two values are known, or if the router was replaced between both. */
function rateBetween(former: Now | undefined, now: Now): number | null {
  if (!former?.reachable || !now.reachable || now.time <= former.time) return null;
  const count = now.status.requests.total - former.status.requests.total;
  return count < 0 ? null : (count * 1000) / (now.time - former.time);
}

function Applications({ applications }: { applications: Record<string, Application> }) {
  return (
    <Table
      label="Applications"
      empty="The configuration has no application."
      rows={Object.entries(applications)}
      keyOf={([name]) => name}
      columns={[
        { title: 'name', cell: ([name]) => <a href={`#/application/${encodeURIComponent(name)}`}><Text value={name} most={60} /></a> },
        { title: 'running', isNumber: true, cell: ([, one]) => number(one.requests.active) },
        { title: 'queue', isNumber: true, cell: ([, one]) => number(one.requests.waiting) },
        { title: 'refused', isNumber: true, cell: ([, one]) => number(one.requests.refused) },
        {
          title: 'processes',
          isNumber: true,
          cell: ([, { processes }]) => (
            <>
              {number(processes.running)}
              {processes.starting > 0 && ` (${processes.starting} starting)`}
            </>
          ),
        },
        { title: 'reason', cell: ([, one]) => <Reason application={one} /> },
      ]}
    />
  );
}

/** Why the pool has its size, or why it does not start. */
export function Reason({ application }: { application: Application }) {
  if (application.failure) return <Problem>Answers 503: <Text value={application.failure} most={400} /></Problem>;
  return <>{application.processes.auto?.why ?? 'a fixed number of processes'}</>;
}

function Draining({ status }: { status: Status }) {
  const draining = Object.entries(status.draining ?? {});
  if (draining.length === 0) return null;
  return (
    <section>
      <h2>Former generations</h2>
      <Table
        label="Former generations that finish their requests"
        empty=""
        rows={draining}
        keyOf={([name]) => name}
        columns={[
          { title: 'application', cell: ([name]) => <Text value={name} most={60} /> },
          { title: 'generations', isNumber: true, cell: ([, one]) => one.generations },
          { title: 'processes', isNumber: true, cell: ([, one]) => one.processes },
        ]}
      />
    </section>
  );
}

function Upstreams({ status }: { status: Status }) {
  const servers = Object.entries(status.upstreams ?? {}).flatMap(([upstream, { servers }]) =>
    Object.entries(servers).map(([address, server]) => ({ upstream, address, ...server })),
  );
  if (servers.length === 0) return null;
  return (
    <section>
      <h2>Upstreams</h2>
      <Table
        label="Upstreams"
        empty=""
        rows={servers}
        keyOf={(server) => `${server.upstream} ${server.address}`}
        columns={[
          { title: 'upstream', cell: (server) => <Text value={server.upstream} /> },
          { title: 'server', cell: (server) => <Text value={server.address} /> },
          { title: 'state', cell: (server) => <span class={`badge ${server.state === 'up' ? 'good' : 'waiting'}`}>{server.state}</span> },
          { title: 'reason', cell: (server) => <Text value={server.reason} /> },
        ]}
      />
    </section>
  );
}
