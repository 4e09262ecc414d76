// All applications: their rates, times, queue, refused requests and processes.

import { useState } from 'preact/hooks';
import { number, rate, seconds } from '../model/format';
import type { Application, Rate, Rates } from '../model/types';
import { Choice } from './choice';
import { Problem } from './notice';
import { causesOf } from './refused';
import { Table } from './table';
import { Text } from './text';

interface Row {
  name: string;
  application: Application;
  rates: Rate | undefined;
}

type Order = (one: Row, other: Row) => number;

/** More applications than these can be filtered and sorted. */
const FEW = 8;
const largest = (of: (row: Row) => number | null | undefined): Order => (one, other) => (of(other) ?? -1) - (of(one) ?? -1);
const ORDERS: { value: string; label: string; order: Order }[] = [
  { value: 'name', label: 'name', order: () => 0 },
  { value: 'requests', label: 'requests per second', order: largest((row) => row.rates?.requests) },
  { value: 'errors', label: 'errors per second', order: largest((row) => row.rates?.errors) },
  { value: 'slow', label: '95 % of the times', order: largest((row) => row.rates?.p95) },
  { value: 'queue', label: 'queue', order: largest((row) => row.application.requests.waiting) },
  { value: 'refused', label: 'refused', order: largest((row) => row.application.requests.refused) },
  { value: 'processes', label: 'processes', order: largest((row) => row.application.processes.running) },
];

export function Applications({ applications, rates }: { applications: Record<string, Application>; rates: Rates | null | undefined }) {
  const [filter, setFilter] = useState('');
  const [by, setBy] = useState('name');
  const all = Object.entries(applications).map(([name, application]): Row => ({ name, application, rates: rates?.applications[name] }));
  const order = ORDERS.find(({ value }) => value === by)?.order ?? (() => 0);
  // An application that does not start comes first, whatever the order is.
  const rows = all
    .filter((row) => row.name.toLowerCase().includes(filter.toLowerCase()))
    .sort((one, other) => Number(!!other.application.failure) - Number(!!one.application.failure) || order(one, other));
  const others = rates?.applications[''];
  return (
    <>
      {all.length > FEW && (
        <div class="bar">
          <label class="field">
            <span>Name contains</span>
            <input type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
          </label>
          <Choice label="Sorted by" value={by} options={ORDERS} onChange={setBy} />
          <span class="empty">{rows.length} of {all.length}</span>
        </div>
      )}
      <Table
        label="Applications"
        empty={filter ? 'No name contains this text.' : 'The configuration has no application.'}
        rows={rows}
        keyOf={({ name }) => name}
        columns={[
          { title: 'name', cell: ({ name }) => <a href={`#/application/${encodeURIComponent(name)}`}><Text value={name} most={60} /></a> },
          { title: 'requests/s', isNumber: true, cell: ({ rates }) => rate(rates?.requests) },
          { title: 'errors/s', isNumber: true, cell: ({ rates }) => <Errors count={rates?.errors} /> },
          { title: 'median', isNumber: true, cell: ({ rates }) => seconds(rates?.p50) },
          { title: '95 %', isNumber: true, cell: ({ rates }) => seconds(rates?.p95) },
          { title: '99 %', isNumber: true, cell: ({ rates }) => seconds(rates?.p99) },
          { title: 'running', isNumber: true, cell: ({ application }) => number(application.requests.active) },
          { title: 'queue', isNumber: true, cell: ({ application }) => number(application.requests.waiting) },
          { title: 'refused', isNumber: true, cell: (row) => <Refused row={row} /> },
          {
            title: 'processes',
            isNumber: true,
            cell: ({ application: { processes } }) => (
              <>
                {number(processes.running)}
                {processes.starting > 0 && ` (${processes.starting} starting)`}
              </>
            ),
          },
          { title: 'reason', cell: ({ application }) => <Reason application={application} /> },
        ]}
      />
      {others && others.requests > 0 && (
        <p class="empty">
          Without an application (files, proxies, redirects): {rate(others.requests)} requests per second, {rate(others.errors)} errors; median {seconds(others.p50)},
          95 % {seconds(others.p95)}.
        </p>
      )}
    </>
  );
}

function Errors({ count }: { count: number | undefined }) {
  return count ? <span class="badge bad">{rate(count)}</span> : <>{rate(count)}</>;
}

/** With the causes, if they are known: those of the queue alone are in the status. */
function Refused({ row: { application, rates } }: { row: Row }) {
  const causes = causesOf(rates?.refused_total);
  return causes ? <span class="causes">{causes}</span> : <>{number(application.requests.refused)}</>;
}

/** Why the pool has its size, or why it does not start. */
export function Reason({ application }: { application: Application }) {
  if (application.failure) return <Problem>Answers 503: <Text value={application.failure} most={400} /></Problem>;
  if (application.drained) return <><span class="badge waiting">drained</span> Answers 503.</>;
  return <>{application.processes.auto?.why ?? 'a fixed number of processes'}</>;
}
