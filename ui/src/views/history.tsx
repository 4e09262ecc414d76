// The last hours: rates, times, processes, and what happened.

import { useState } from 'preact/hooks';
import { bytes, number, rate, seconds } from '../model/format';
import { usePolled } from '../model/polling';
import type { About, History } from '../model/types';
import { Chart } from '../parts/chart';
import { Choice } from '../parts/choice';
import { Marks } from '../parts/marks';
import { Hint, Problem } from '../parts/notice';
import { Table } from '../parts/table';
import { Text } from '../parts/text';

const RANGES = [
  { value: '900', label: '15 minutes' },
  { value: '3600', label: '1 hour' },
  { value: '21600', label: '6 hours' },
  { value: '86400', label: '24 hours' },
];
const ALL = '';

export function HistoryView({ names, chosen, about }: { names: string[]; chosen?: string | undefined; about: About | undefined }) {
  const [range, setRange] = useState('3600');
  const [application, setApplication] = useState(chosen ?? ALL);
  const options = [{ value: ALL, label: 'all' }, ...names.map((name) => ({ value: name, label: name }))];
  return (
    <>
      <h1>History</h1>
      <div class="bar">
        <Choice label="Time" value={range} options={RANGES} onChange={setRange} />
        <Choice label="Application" value={application} options={options} onChange={setApplication} />
      </div>
      <HistoryCharts range={Number(range)} application={application} />
      {about &&
        (about.history.is_kept ? (
          <p class="empty">The history of the last {about.history.hours} hours is kept in {about.history.place}, while the dashboard runs.</p>
        ) : (
          <Hint>The history is in memory only, and lost when the dashboard ends: {about.history.place}</Hint>
        ))}
    </>
  );
}

function HistoryCharts({ range, application }: { range: number; application: string }) {
  const { value, error } = usePolled<History>(`history?seconds=${range}&application=${encodeURIComponent(application)}`, 5000);
  if (error) return <Problem>{error.message}</Problem>;
  if (!value) return <p class="empty">Reading…</p>;
  const { times, series, marks } = value;
  const isAll = application === ALL;
  const requests = isAll ? [{ label: 'all, with files and proxies', values: value.requests }] : [];
  const hasAnswers = series.errors.some((value) => value !== null);
  const common = { times, marks };
  return (
    <>
      <div class="charts">
        <Chart {...common} title="Requests per second" format={rate} lines={[{ label: 'finished by PHP', values: series.finished }, ...requests]} />
        <Chart
          {...common}
          title="Requests in progress"
          format={(value) => number(value, 1)}
          lines={[
            { label: 'running', values: series.active },
            { label: 'in the queue', values: series.waiting },
          ]}
        />
        <Chart {...common} title="Mean time in PHP (running requests ÷ rate)" format={seconds} lines={[{ label: 'time', values: series.seconds }]} />
        {hasAnswers && (
          <>
            <Chart
              {...common}
              title="Response time"
              format={seconds}
              lines={[
                { label: 'median', values: series.p50 },
                { label: '95 %', values: series.p95 },
                { label: '99 %', values: series.p99 },
              ]}
            />
            <Chart {...common} title="Errors per second (status 500 to 599)" format={rate} lines={[{ label: 'errors', values: series.errors }]} />
          </>
        )}
        <Chart {...common} title="Refused per second (503)" format={rate} lines={[{ label: 'refused', values: series.refused }]} />
        <Chart {...common} title="PHP processes" format={(value) => number(value, 1)} lines={[{ label: 'processes', values: series.processes }]} />
        <Chart {...common} title="Processors used by PHP" format={(value) => number(value, 2)} lines={[{ label: 'processors', values: series.cpu }]} />
        <Chart {...common} title="Memory of PHP" format={bytes} lines={[{ label: 'memory', values: series.memory }]} />
        {isAll && <Chart {...common} title="Connections" format={(value) => number(value, 1)} lines={[{ label: 'open', values: value.connections }]} />}
      </div>
      <section>
        <h2>What happened</h2>
        <Marks marks={marks} />
      </section>
      {isAll && value.applications.length > 1 && (
        <section>
          <h2>Applications in this time</h2>
          <Table
            label="Applications in this time"
            empty=""
            rows={value.applications}
            keyOf={(one) => one.name}
            columns={[
              { title: 'name', cell: (one) => <Text value={one.name} most={60} /> },
              { title: 'finished', isNumber: true, cell: (one) => number(one.finished) },
              { title: 'refused', isNumber: true, cell: (one) => number(one.refused) },
            ]}
          />
        </section>
      )}
    </>
  );
}
