// What happened: changes of the configuration, deploys, outages. The latest first.

import { moment, visible } from '../model/format';
import type { Mark } from '../model/types';
import { Text } from './text';

const MOST = 100;
const KINDS: Record<string, string> = {
  configuration: 'configuration',
  deploy: 'deploy',
  restart: 'restart',
  workers: 'new workers',
  router: 'router',
  lost: 'no answer',
  found: 'answers again',
  dashboard: 'start of the dashboard',
};

export function Marks({ marks }: { marks: Mark[] }) {
  const shown = [...marks].reverse().slice(0, MOST);
  if (shown.length === 0) return <p class="empty">Nothing happened in this time.</p>;
  return (
    <ul class="marks">
      {shown.map((mark, index) => (
        <li key={`${mark.time} ${mark.kind} ${index}`}>
          <MarkTitle mark={mark} />
          {mark.changes && mark.changes.length > 0 && (
            <details>
              <summary>{mark.changes.length === 1 ? '1 change' : `${mark.changes.length} changes`}</summary>
              <Changes mark={mark} />
            </details>
          )}
        </li>
      ))}
    </ul>
  );
}

export function kindOf(mark: Mark): string {
  return KINDS[mark.kind] ?? mark.kind;
}

export function MarkTitle({ mark }: { mark: Mark }) {
  return (
    <>
      <span class="when">{moment(mark.time * 1000)}</span> <span class={`badge ${mark.kind === 'lost' ? 'bad' : ''}`}>{kindOf(mark)}</span>{' '}
      {mark.application && <b><Text value={mark.application} most={60} /> </b>}
      <Text value={mark.text} most={300} />
    </>
  );
}

/** The values before and after, by their paths. */
export function Changes({ mark }: { mark: Mark }) {
  return (
    <pre class="difference" tabIndex={0} role="region" aria-label={`Changes of ${moment(mark.time * 1000)}`}>
      {mark.changes?.map((change) => (
        <div key={change.path}>
          <div>{visible(change.path)}</div>
          {change.before != null && <div class="removed">- {visible(change.before)}</div>}
          {change.after != null && <div class="added">+ {visible(change.after)}</div>}
        </div>
      ))}
    </pre>
  );
}
