// The marks on a time axis of their own, above the charts. A click shows what happened, with its changes.

import { useEffect, useRef, useState } from 'preact/hooks';
import { clock, visible } from '../model/format';
import type { Mark } from '../model/types';
import { Changes, kindOf, MarkTitle } from './marks';

interface MarkLineProps {
  marks: Mark[];
  /** The first and the last second. */
  from: number;
  to: number;
  chosen: Mark[];
  onChoose: (marks: Mark[]) => void;
}

interface Group {
  marks: Mark[];
  /** In pixels from the left. */
  at: number;
}

/** Marks that are nearer share a button: fingers are not thinner. */
const BUTTON = 30;

export function MarkLine({ marks, from, to, chosen, onChoose }: MarkLineProps) {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const parent = place.current;
    if (!parent) return;
    const observer = new ResizeObserver(() => setWidth(parent.clientWidth));
    observer.observe(parent);
    return () => observer.disconnect();
  }, []);
  const groups = grouped(marks, from, to, width - BUTTON);
  const isChosen = (group: Group) => chosen.length > 0 && group.marks.some((mark) => mark.time === chosen[0]?.time);
  return (
    <section aria-label="Marks on the time axis">
      <div class="mark-line" ref={place}>
        {groups.map((group) => (
          <button
            type="button"
            key={group.marks[0]?.time}
            style={{ left: `${group.at}px` }}
            aria-pressed={isChosen(group)}
            aria-label={label(group.marks)}
            title={label(group.marks)}
            onClick={() => onChoose(isChosen(group) ? [] : group.marks)}
          >
            {group.marks.length > 1 ? group.marks.length : kindOf(group.marks[0]!).slice(0, 1).toUpperCase()}
          </button>
        ))}
      </div>
      <div class="mark-axis" aria-hidden="true">
        {[from, (from + to) / 2, to].map((time) => <span key={time}>{clock(time * 1000).slice(0, 5)}</span>)}
      </div>
      {chosen.map((mark, index) => (
        <div class="mark-detail" key={`${mark.time} ${index}`}>
          <p><MarkTitle mark={mark} /></p>
          {mark.changes && mark.changes.length > 0 && <Changes mark={mark} />}
        </div>
      ))}
    </section>
  );
}

function grouped(marks: Mark[], from: number, to: number, width: number): Group[] {
  const groups: Group[] = [];
  if (width <= 0) return groups;
  for (const mark of marks) {
    const at = Math.round((Math.min(Math.max((mark.time - from) / Math.max(to - from, 1), 0), 1)) * width);
    const last = groups[groups.length - 1];
    if (last && at - last.at < BUTTON) last.marks.push(mark);
    else groups.push({ marks: [mark], at });
  }
  return groups;
}

function label(marks: Mark[]): string {
  const names = marks.map((mark) => `${kindOf(mark)}${mark.application ? ` of ${visible(mark.application).slice(0, 60)}` : ''}`);
  const more = names.length > 3 ? ` and ${names.length - 3} more` : '';
  const time = clock((marks[0]?.time ?? 0) * 1000);
  // It begins with the text of the button.
  if (names.length === 1) return `${names[0]!.slice(0, 1).toUpperCase()}${names[0]!.slice(1)}, ${time}`;
  return `${names.length} marks at ${time}: ${names.slice(0, 3).join(', ')}${more}`;
}
