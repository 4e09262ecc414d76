// Why requests did not get an answer of the application.

import { number, rate } from '../model/format';
import type { Rate } from '../model/types';
import { Table } from './table';

/** The causes of the metrics: docs/observability.md. */
const CAUSES: Record<string, [text: string, status: string]> = {
  queue: ['no worker took it in time, or would', '503'],
  kills_workers: ['requests of its kind kill workers', '503'],
  not_started: ['the application does not start', '503'],
  drained: ['the application drains', '503'],
  limit: ['a rate_limit or connection_limit of the configuration', '429'],
  worker_died: ['its worker died', '502'],
  timeout: ['the worker, the upstream or the file system took too long', '504'],
  bad_gateway: ['no valid response', '502'],
  bad_request: ['no valid request, or too large', '400 to 505'],
  client_left: ['the client left before the answer', 'none'],
  internal: ['a full disk, no descriptors, or a bug', '500'],
};

export function causeText(cause: string): string {
  return CAUSES[cause]?.[0] ?? cause;
}

/** The causes and their counts, the largest first. */
export function causesOf(counts: Record<string, number> | null | undefined): string {
  const all = Object.entries(counts ?? {}).filter(([, count]) => count > 0);
  return all.sort(([, one], [, other]) => other - one).map(([cause, count]) => `${number(count)} ${cause}`).join(', ');
}

export function RefusedTable({ rates }: { rates: Rate | undefined }) {
  const rows = Object.entries(rates?.refused_total ?? {}).sort(([, one], [, other]) => other - one);
  return (
    <Table
      label="Refused requests"
      empty="Each request got an answer of the application."
      rows={rows}
      keyOf={([cause]) => cause}
      columns={[
        { title: 'cause', cell: ([cause]) => <code>{cause}</code> },
        { title: 'meaning', cell: ([cause]) => causeText(cause) },
        { title: 'answer', cell: ([cause]) => CAUSES[cause]?.[1] ?? '–' },
        { title: 'per second', isNumber: true, cell: ([cause]) => rate(rates?.refused[cause] ?? 0) },
        { title: 'since the start', isNumber: true, cell: ([, count]) => number(count) },
      ]}
    />
  );
}
