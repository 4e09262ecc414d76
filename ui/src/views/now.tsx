// What runs now.

import { Applications } from '../parts/applications';
import { Text } from '../parts/text';
import { RunningTable, runningOf } from '../parts/running';
import { Table } from '../parts/table';
import { Tiles } from '../parts/tiles';
import { Upstreams } from '../parts/upstreams';
import { number, rate } from '../model/format';
import type { Application, Now, Rate, Rates, Status } from '../model/types';

export function NowView({ now, former, isReadOnly }: { now: Now; former?: Now | undefined; isReadOnly: boolean }) {
  if (!now.reachable) return <h1>Now</h1>;
  const { status, workers } = now;
  const running = runningOf(workers);
  return (
    <>
      <h1>Now</h1>
      <Tiles tiles={tiles(status, rateBetween(former, now), now.rates)} />
      <section>
        <h2>Requests that run</h2>
        <RunningTable running={running} withApplication={Object.keys(status.applications).length !== 1} />
      </section>
      <section>
        <h2>Applications</h2>
        <Applications applications={status.applications} rates={now.rates} />
      </section>
      <Draining status={status} />
      <Upstreams status={status} isReadOnly={isReadOnly} />
    </>
  );
}

function tiles(status: Status, perSecond: number | null, rates: Rates | null | undefined) {
  const applications = Object.values(status.applications);
  const sum = (of: (application: Application) => number) => applications.reduce((total, one) => total + of(one), 0);
  const waiting = sum((one) => one.requests.waiting ?? 0);
  const rated = (of: (one: Rate) => number) => (rates ? Object.values(rates.applications).reduce((total, one) => total + of(one), 0) : null);
  const errors = rated((one) => one.errors);
  const failed = applications.filter((one) => one.failure).length;
  return [
    { label: 'requests per second', value: rate(rated((one) => one.requests) ?? perSecond) },
    { label: 'errors per second', value: rate(errors), note: '500 to 599', isBad: (errors ?? 0) > 0 },
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
