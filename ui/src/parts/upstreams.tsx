// The servers of upstreams: their state, and whether they get requests.

import { useState } from 'preact/hooks';
import { number } from '../model/format';
import { post } from '../model/session';
import type { Status, UpstreamServer } from '../model/types';
import { Problem } from './notice';
import { Table } from './table';
import { Text } from './text';

interface Server extends UpstreamServer {
  upstream: string;
  address: string;
}

export function Upstreams({ status, isReadOnly }: { status: Status; isReadOnly: boolean }) {
  const [problem, setProblem] = useState('');
  const servers = Object.entries(status.upstreams ?? {}).flatMap(([upstream, { servers }]) =>
    Object.entries(servers).map(([address, server]): Server => ({ upstream, address, ...server })),
  );
  if (servers.length === 0) return null;
  return (
    <section>
      <h2>Upstreams</h2>
      {problem && <Problem><Text value={problem} most={600} /></Problem>}
      <Table
        label="Upstreams"
        empty=""
        rows={servers}
        keyOf={(server) => `${server.upstream} ${server.address}`}
        columns={[
          { title: 'upstream', cell: (server) => <Text value={server.upstream} /> },
          { title: 'server', cell: (server) => <Text value={server.address} /> },
          { title: 'state', cell: (server) => <State server={server} /> },
          { title: 'requests', isNumber: true, cell: (server) => number(server.active) },
          { title: 'reason', cell: (server) => <Text value={server.reason} /> },
          ...(isReadOnly ? [] : [{ title: 'use', cell: (server: Server) => <Drain server={server} onProblem={setProblem} /> }]),
        ]}
      />
    </section>
  );
}

function State({ server }: { server: Server }) {
  const kind = server.state === 'up' ? 'good' : server.state === 'drained' ? 'waiting' : 'bad';
  const finishes = server.state === 'drained' && (server.active ?? 0) > 0;
  return <span class={`badge ${kind}`}>{finishes ? 'draining' : server.state}</span>;
}

/** A change of the configuration: a click asks first. */
function Drain({ server, onProblem }: { server: Server; onProblem: (text: string) => void }) {
  const [state, setState] = useState<'ready' | 'sure' | 'busy'>('ready');
  const isDrained = server.state === 'drained';
  const change = async () => {
    setState('busy');
    try {
      await post('drain', { upstream: server.upstream, server: server.address, drain: !isDrained });
      onProblem('');
    } catch (error) {
      onProblem((error as Error).message);
    }
    setState('ready');
  };
  const name = server.address.slice(0, 60);
  if (state === 'sure') {
    return (
      <span class="choices">
        <button type="button" class="primary small" onClick={() => void change()}>{isDrained ? 'Use again' : 'Drain now'}</button>{' '}
        <button type="button" class="small" onClick={() => setState('ready')}>No</button>
      </span>
    );
  }
  return (
    <button type="button" class="small" disabled={state === 'busy'} aria-label={`${isDrained ? 'Use again' : 'Drain'} ${name}`} onClick={() => setState('sure')}>
      {state === 'busy' ? 'Waiting…' : isDrained ? 'Use again…' : 'Drain…'}
    </button>
  );
}
