// Requests that run, the oldest first. The stack of each is a click away.

import { useState } from 'preact/hooks';
import { bytes, percent, seconds, visible } from '../model/format';
import { of, post } from '../model/session';
import type { Frame, Worker } from '../model/types';
import { Problem } from './notice';
import { Stack } from './stack';
import { Table } from './table';
import { Text } from './text';

export interface Running {
  application: string;
  worker: Worker;
}

interface Opened {
  key: string;
  frames?: Frame[];
  problem?: string;
}

/** A request that uses less than this share of a processor waits for others. */
const COMPUTES = 0.5;

export function RunningTable({ running, withApplication }: { running: Running[]; withApplication: boolean }) {
  const [opened, setOpened] = useState<Opened | null>(null);
  const keyOf = ({ application, worker }: Running) => `${application} ${worker.pid}`;
  const show = async (row: Running) => {
    const key = keyOf(row);
    if (opened?.key === key && (opened.frames || opened.problem)) return setOpened(null);
    setOpened({ key });
    try {
      const { frames } = await post<{ frames: Frame[] }>(of(row.application, 'stack'), { pid: row.worker.pid });
      setOpened({ key, frames });
    } catch (error) {
      setOpened({ key, problem: (error as Error).message });
    }
  };
  const rows = [...running].sort((one, other) => (other.worker.seconds ?? -1) - (one.worker.seconds ?? -1));
  return (
    <Table
      label="Requests that run"
      empty="No request runs now."
      rows={rows}
      keyOf={keyOf}
      columns={[
        ...(withApplication ? [{ title: 'application', cell: (row: Running) => <Text value={row.application} most={40} /> }] : []),
        {
          title: 'request',
          cell: ({ worker }) => (
            <span class="request">
              <b>{visible(worker.method).slice(0, 20)}</b> <Text value={worker.url} />
              {(worker.running ?? 1) > 1 && <em> and {(worker.running ?? 1) - 1} more</em>}
            </span>
          ),
        },
        { title: 'time', isNumber: true, cell: ({ worker }) => seconds(worker.seconds) },
        {
          title: 'PHP',
          cell: ({ worker }) => {
            const isComputing = (worker.cpu ?? 0) >= COMPUTES;
            return (
              <span class={`badge ${isComputing ? 'computing' : 'waiting'}`}>
                {isComputing ? 'computing' : 'waiting'} {percent(worker.cpu)}
              </span>
            );
          },
        },
        { title: 'memory', isNumber: true, cell: ({ worker }) => bytes(worker.memory) },
        { title: 'pid', isNumber: true, cell: ({ worker }) => worker.pid ?? '–' },
        {
          title: 'stack',
          cell: (row) => (
            <button type="button" class="small" aria-expanded={opened?.key === keyOf(row)} onClick={() => void show(row)}>
              Stack
            </button>
          ),
        },
      ]}
      below={(row) => {
        if (opened?.key !== keyOf(row)) return null;
        if (opened.problem) return <Problem>{opened.problem}</Problem>;
        return opened.frames ? <Stack frames={opened.frames} /> : <p class="empty">Reading the stack…</p>;
      }}
    />
  );
}

/** The workers with a request. */
export function runningOf(workers: Record<string, Worker[]>): Running[] {
  return Object.entries(workers).flatMap(([application, list]) =>
    (list ?? []).filter((worker) => worker.method).map((worker) => ({ application, worker })),
  );
}
