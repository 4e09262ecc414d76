// A stack of PHP, innermost function first.

import { visible } from '../model/format';

export interface StackEntry {
  name: string;
  file?: string | undefined;
  line?: number | undefined;
}

export function Stack({ frames }: { frames: StackEntry[] }) {
  if (frames.length === 0) return <p class="empty">The stack is empty: PHP starts or ends the request.</p>;
  return (
    <ol class="stack">
      {frames.map((frame, index) => (
        <li key={index}>
          <code>{visible(frame.name)}</code>
          {frame.file && (
            <span class="place">
              {visible(frame.file)}
              {typeof frame.line === 'number' && frame.line > 0 ? `:${frame.line}` : ''}
            </span>
          )}
        </li>
      ))}
    </ol>
  );
}
