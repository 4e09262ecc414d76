// Flame graphs: start, stop, compare two.

import { useMemo, useRef, useState } from 'preact/hooks';
import { added, busiest, changed, emptyProfile, tree, type Profile } from '../model/flame';
import { clock, number, visible } from '../model/format';
import { of, post } from '../model/session';
import type { ProfilePart } from '../model/types';
import { Choice } from '../parts/choice';
import { FlameGraph } from '../parts/flame_graph';
import { Hint, Problem } from '../parts/notice';
import { Table } from '../parts/table';
import { Text } from '../parts/text';

/** howdah samples in parts of this length, so that a profile can be seen while it grows, and stopped at any time. */
const PART_SECONDS = 2;
const MOST_SECONDS = 600;
const RATES = [25, 99, 499].map((rate) => ({ value: String(rate), label: `${rate} samples per second` }));

/** The profiles of this page: they stay until it is closed. */
const recorded: Profile[] = [];

export function ProfileView({ names, chosen }: { names: string[]; chosen?: string | undefined }) {
  const [name, setName] = useState(chosen ?? names[0] ?? '');
  const [sampling, setSampling] = useState('99');
  const [current, setCurrent] = useState<Profile | null>(recorded[recorded.length - 1] ?? null);
  const [base, setBase] = useState('');
  const [isRunning, setRunning] = useState(false);
  const [problem, setProblem] = useState('');
  const stop = useRef<(() => void) | null>(null);

  const start = async () => {
    let isStopped = false;
    stop.current = () => (isStopped = true);
    setRunning(true);
    setProblem('');
    let profile = emptyProfile(name);
    recorded.push(profile);
    try {
      while (!isStopped && profile.seconds < MOST_SECONDS) {
        const part = await post<ProfilePart>(of(name, 'profile'), { seconds: PART_SECONDS, rate: Number(sampling) });
        profile = added(profile, part, PART_SECONDS);
        recorded[recorded.length - 1] = profile;
        setCurrent(profile);
        if (!part.complete) {
          setProblem('The samples exceeded the size limit, and the last ones are missing: use a lower rate.');
        }
      }
    } catch (error) {
      setProblem((error as Error).message);
    }
    if (profile.samples === 0) recorded.pop();
    setRunning(false);
  };
  const other = base === '' ? undefined : recorded[Number(base)];
  const root = useMemo(() => (current && current.samples > 0 ? tree(current, other) : null), [current, other]);
  const label = (profile: Profile) => `${profile.application}, ${clock(profile.start)}, ${number(profile.samples)} samples`;
  const index = current ? recorded.findIndex((profile) => profile.start === current.start) : -1;

  return (
    <>
      <h1>Flame graph</h1>
      <div class="bar">
        <Choice label="Application" value={name} options={names.map((name) => ({ value: name, label: name }))} onChange={setName} isDisabled={isRunning} />
        <Choice label="Rate" value={sampling} options={RATES} onChange={setSampling} isDisabled={isRunning} />
        {isRunning ? (
          <button type="button" class="primary" onClick={() => stop.current?.()}>Stop</button>
        ) : (
          <button type="button" class="primary" disabled={!name} onClick={() => void start()}>Start</button>
        )}
        {isRunning && <span role="status">Sampling…</span>}
      </div>
      {problem && <Problem>{visible(problem)}</Problem>}
      {recorded.length > 0 && (
        <div class="bar">
          <Choice
            label="Shown"
            value={String(index)}
            options={recorded.map((profile, index) => ({ value: String(index), label: label(profile) }))}
            onChange={(value) => setCurrent(recorded[Number(value)] ?? null)}
            isDisabled={isRunning}
          />
          <Choice
            label="Compared with"
            value={base}
            options={[{ value: '', label: 'nothing' }, ...recorded.map((profile, index) => ({ value: String(index), label: label(profile) }))]}
            onChange={setBase}
          />
        </div>
      )}
      {isRunning && current?.samples === 0 && <Hint>No request ran so far: idle workers are not sampled.</Hint>}
      {current && root && (
        <>
          <p>
            {number(current.samples)} samples in {current.seconds} s. Most time in:{' '}
            {busiest(current, 5).map(({ name, share }) => `${visible(name)} ${(share * 100).toFixed(1)} %`).join(', ')}
          </p>
          {other && <p><span class="key much-more">more</span> <span class="key same">the same</span> <span class="key much-less">less</span> time than before, as a share of both profiles</p>}
          <FlameGraph root={root} isDifference={other !== undefined} />
          {other && <ChangedTable profile={current} other={other} />}
        </>
      )}
      {!current && !isRunning && <p class="empty">Start samples PHP's stacks while requests run. A sample is wall time: a wait has its own frame, such as [poll].</p>}
    </>
  );
}

function ChangedTable({ profile, other }: { profile: Profile; other: Profile }) {
  const percents = (share: number) => `${(share * 100).toFixed(1)} %`;
  return (
    <section>
      <h2>Functions whose own time changed most</h2>
      <Table
        label="Functions whose own time changed most"
        empty="Both profiles have the same shares."
        rows={changed(profile, other, 10)}
        keyOf={(one) => one.name}
        columns={[
          { title: 'function', cell: (one) => <Text value={one.name} /> },
          { title: 'before', isNumber: true, cell: (one) => percents(one.before) },
          { title: 'now', isNumber: true, cell: (one) => percents(one.share) },
          {
            title: 'change',
            isNumber: true,
            cell: (one) => {
              const points = (one.share - one.before) * 100;
              return <span class={`badge ${points > 0 ? 'bad' : 'good'}`}>{`${points > 0 ? '+' : '−'}${Math.abs(points).toFixed(1)} points`}</span>;
            },
          },
        ]}
      />
    </section>
  );
}
