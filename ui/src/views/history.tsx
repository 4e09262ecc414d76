// The last hours: rates, times, processes, and what happened; of all applications, of one, or of one route.

import { useState } from 'preact/hooks';
import { bytes, number, rate, seconds, share, visible } from '../model/format';
import { usePolled } from '../model/polling';
import type { About, Answered, History, Mark } from '../model/types';
import { Chart, type Line } from '../parts/chart';
import { Choice } from '../parts/choice';
import { MarkLine } from '../parts/mark_line';
import { Marks } from '../parts/marks';
import { Hint, Problem } from '../parts/notice';
import { causesOf } from '../parts/refused';
import { Table, type Column } from '../parts/table';
import { Text } from '../parts/text';

const RANGES = [
  { value: '900', label: '15 minutes' },
  { value: '3600', label: '1 hour' },
  { value: '21600', label: '6 hours' },
  { value: '86400', label: '24 hours' },
];
const ALL = '';
const WITHOUT = 'files, proxies, redirects';

/** What is shown; an empty name is everything. */
interface Subject {
  application: string;
  route: string;
}

export function HistoryView({ names, chosen, about }: { names: string[]; chosen?: string | undefined; about: About | undefined }) {
  const [range, setRange] = useState('3600');
  const [subject, setSubject] = useState<Subject>({ application: chosen ?? ALL, route: ALL });
  const options = [{ value: ALL, label: 'all' }, ...names.map((name) => ({ value: name, label: name }))];
  return (
    <>
      <h1>History</h1>
      <div class="bar">
        <Choice label="Time" value={range} options={RANGES} onChange={setRange} />
        <Choice label="Application" value={subject.application} options={options} onChange={(application) => setSubject({ application, route: ALL })} />
        {subject.route && (
          <span class="chosen">
            Route <code>{visible(subject.route)}</code>{' '}
            <button type="button" onClick={() => setSubject({ ...subject, route: ALL })}>All routes</button>
          </span>
        )}
      </div>
      <HistoryCharts range={Number(range)} subject={subject} onChoose={setSubject} />
      {about &&
        (about.history.is_kept ? (
          <p class="empty">The history of the last {about.history.hours} hours is kept in {about.history.place}, while the dashboard runs.</p>
        ) : (
          <Hint>The history is in memory only, and lost when the dashboard ends: {about.history.place}</Hint>
        ))}
    </>
  );
}

interface ChartsProps {
  range: number;
  subject: Subject;
  onChoose: (subject: Subject) => void;
}

function HistoryCharts({ range, subject, onChoose }: ChartsProps) {
  const { application, route } = subject;
  const query = `history?seconds=${range}&application=${encodeURIComponent(application)}&route=${encodeURIComponent(route)}`;
  const { value, error } = usePolled<History>(query, 5000);
  const [chosen, setChosen] = useState<Mark[]>([]);
  if (error) return <Problem>{error.message}</Problem>;
  if (!value) return <p class="empty">Reading…</p>;
  const { times, series, marks } = value;
  const isAll = application === ALL;
  const isRoute = route !== ALL;
  const hasAnswers = series.errors.some((value) => value !== null);
  const common = { times, marks, chosen };
  const rates: Line[] = [
    ...(hasAnswers ? [{ label: isAll && !isRoute ? 'answered, with files and proxies' : 'answered', values: series.answered }] : []),
    ...(isRoute ? [] : [{ label: 'finished by PHP', values: series.finished }]),
    ...(isAll && !hasAnswers ? [{ label: 'all, with files and proxies', values: value.requests }] : []),
  ];
  const causes = Object.entries(value.refused_by).map(([cause, values]) => ({ label: cause, values }));
  return (
    <>
      <MarkLine marks={marks} from={times[0] ?? 0} to={times[times.length - 1] ?? 0} chosen={chosen} onChoose={setChosen} />
      <div class="charts">
        <Chart {...common} title="Requests per second" format={rate} lines={rates} />
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
        <Chart
          {...common}
          title={hasAnswers ? 'Without an answer of the application, per second, by cause' : 'Refused per second (503)'}
          format={rate}
          lines={hasAnswers ? (causes.length > 0 ? causes : [{ label: 'none', values: series.errors.map((value) => value && 0) }]) : [{ label: 'refused', values: series.refused }]}
        />
        {!isRoute && (
          <>
            <Chart
              {...common}
              title="Requests in progress"
              format={(value) => number(value, 1)}
              lines={[
                { label: 'running', values: series.active },
                { label: 'in the queue', values: series.waiting },
              ]}
            />
            <Chart {...common} title="PHP processes" format={(value) => number(value, 1)} lines={[{ label: 'processes', values: series.processes }]} />
            <Chart {...common} title="Mean time in PHP (running requests ÷ rate)" format={seconds} lines={[{ label: 'time', values: series.seconds }]} />
            <Chart {...common} title="Processors used by PHP" format={(value) => number(value, 2)} lines={[{ label: 'processors', values: series.cpu }]} />
            <Chart {...common} title="Memory of PHP" format={bytes} lines={[{ label: 'memory', values: series.memory }]} />
            {isAll && <Chart {...common} title="Connections" format={(value) => number(value, 1)} lines={[{ label: 'open', values: value.connections }]} />}
          </>
        )}
      </div>
      {!isRoute && value.routes.length > 0 && <Routes history={value} isAll={isAll} onChoose={onChoose} />}
      {isAll && !isRoute && value.applications.length > 1 && <Applications history={value} hasAnswers={hasAnswers} onChoose={onChoose} />}
      <section>
        <h2>What happened</h2>
        <Marks marks={marks} />
      </section>
    </>
  );
}

function Routes({ history, isAll, onChoose }: { history: History; isAll: boolean; onChoose: (subject: Subject) => void }) {
  type Row = History['routes'][number];
  return (
    <section>
      <h2>Routes in this time</h2>
      <Table
        label="Routes in this time"
        empty=""
        rows={history.routes}
        keyOf={(one) => `${one.application}\n${one.route}`}
        columns={[
          {
            title: 'route',
            cell: (one) =>
              one.route ? (
                <button type="button" class="link" onClick={() => onChoose({ application: one.application, route: one.route })}>{visible(one.route).slice(0, 120)}</button>
              ) : (
                <>–</>
              ),
          },
          ...(isAll ? [{ title: 'application', cell: (one: Row) => (one.application ? <Text value={one.application} most={60} /> : <em>{WITHOUT}</em>) }] : []),
          ...answerColumns<Row>(),
        ]}
      />
    </section>
  );
}

function Applications({ history, hasAnswers, onChoose }: { history: History; hasAnswers: boolean; onChoose: (subject: Subject) => void }) {
  type Row = History['applications'][number];
  return (
    <section>
      <h2>Applications in this time</h2>
      <Table
        label="Applications in this time"
        empty=""
        rows={history.applications}
        keyOf={(one) => one.name}
        columns={[
          {
            title: 'name',
            cell: (one) =>
              one.name ? (
                <button type="button" class="link" onClick={() => onChoose({ application: one.name, route: ALL })}>{visible(one.name).slice(0, 60)}</button>
              ) : (
                <em>{WITHOUT}</em>
              ),
          },
          { title: 'finished by PHP', isNumber: true, cell: (one) => number(one.finished) },
          ...(hasAnswers ? answerColumns<Row>() : []),
        ]}
      />
    </section>
  );
}

function answerColumns<Row extends Answered>(): Column<Row>[] {
  return [
    { title: 'answered', isNumber: true, cell: (one) => number(one.answered) },
    { title: 'errors', isNumber: true, cell: (one) => number(one.errors) },
    { title: 'share', isNumber: true, cell: (one) => share(one.errors, one.answered) },
    { title: 'median', isNumber: true, cell: (one) => seconds(one.p50) },
    { title: '95 %', isNumber: true, cell: (one) => seconds(one.p95) },
    { title: '99 %', isNumber: true, cell: (one) => seconds(one.p99) },
    { title: 'refused', isNumber: true, cell: (one) => <span class="causes">{causesOf(one.refused) || '–'}</span> },
  ];
}
