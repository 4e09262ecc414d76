// Texts of strangers: always text, visible characters only, and cut if they are long.

import { useState } from 'preact/hooks';
import { visible } from '../model/format';

export function Text({ value, most = 160 }: { value: string | null | undefined; most?: number }) {
  const [isOpen, setOpen] = useState(false);
  const text = visible(value ?? '');
  if (text.length <= most) return <span class="text">{text}</span>;
  return (
    <span class="text">
      {isOpen ? text : `${text.slice(0, most)}…`}{' '}
      <button type="button" class="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        {isOpen ? 'less' : `all ${text.length} characters`}
      </button>
    </span>
  );
}
