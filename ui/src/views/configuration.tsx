// The configuration: read, edit, check, apply.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { difference } from '../model/lines';
import { helpAt, type Schema } from '../model/schema';
import { post, put, read, Refused } from '../model/session';
import type { Checked } from '../model/types';
import { Hint, Problem, Success } from '../parts/notice';
import { visible } from '../model/format';

interface Loaded {
  text: string;
  etag: string;
}

interface Outcome {
  kind: 'good' | 'bad';
  text: string;
  line?: number | null | undefined;
  column?: number | null | undefined;
}

export function ConfigurationView({ isReadOnly }: { isReadOnly: boolean }) {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [text, setText] = useState('');
  const [schema, setSchema] = useState<Schema | null>(null);
  const [offset, setOffset] = useState(0);
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const [isBusy, setBusy] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);

  const load = async () => {
    try {
      const loaded = await read<Loaded>('config');
      setLoaded(loaded);
      setText(loaded.text);
    } catch (error) {
      setOutcome({ kind: 'bad', text: (error as Error).message });
    }
  };
  useEffect(() => {
    void load();
    read<Schema>('schema').then(setSchema, () => {});
  }, []);
  const lines = useMemo(() => (loaded ? difference(loaded.text, text) : []), [loaded, text]);
  const help = useMemo(() => (schema ? helpAt(schema, text, offset) : null), [schema, text, offset]);
  const isChanged = lines.length > 0;

  const act = async (action: () => Promise<Outcome>) => {
    setBusy(true);
    setOutcome(null);
    let outcome: Outcome;
    try {
      outcome = await action();
    } catch (error) {
      const { line, column } = error instanceof Refused ? error.body : {};
      const isOutdated = error instanceof Refused && error.status === 412;
      const remedy = isOutdated ? ' Your text is kept here: copy it, then choose Discard to read the new one.' : '';
      outcome = { kind: 'bad', text: (error as Error).message + remedy, line, column };
    }
    setOutcome(outcome);
    setBusy(false);
    if (outcome.line != null) select(area.current, text, outcome.line, outcome.column ?? 1);
  };
  const check = () =>
    act(async () => {
      const checked = await post<Checked>('config/check', text);
      if (!checked.valid) {
        return { kind: 'bad', text: `${checked.error} ${checked.detail ?? ''}`, line: checked.line, column: checked.column };
      }
      const warnings = (checked.warnings ?? []).map((warning) => ` Warning: ${warning}`).join('');
      return { kind: 'good', text: `The configuration is valid.${warnings}` };
    });
  const apply = () =>
    act(async () => {
      const { success } = await put<{ success: string }>('config', { text, etag: loaded?.etag });
      await load();
      return { kind: 'good', text: success };
    });

  return (
    <>
      <h1>Configuration</h1>
      {isReadOnly && <Hint>This dashboard is read-only: a text can be checked, but not applied.</Hint>}
      <div class="editor">
        <div>
          <label class="field" for="configuration">
            <span>Text (JSON; comments are allowed, and are not kept)</span>
          </label>
          <textarea
            id="configuration"
            ref={area}
            spellcheck={false}
            autocomplete="off"
            value={text}
            disabled={!loaded}
            onInput={(event) => setText(event.currentTarget.value)}
            onKeyUp={(event) => setOffset(event.currentTarget.selectionStart)}
            onClick={(event) => setOffset(event.currentTarget.selectionStart)}
          />
          <div class="bar">
            <button type="button" disabled={isBusy || !loaded} onClick={() => void check()}>
              Check
            </button>
            <button type="button" class="primary" disabled={isBusy || !isChanged || isReadOnly} onClick={() => void apply()}>
              {isBusy ? 'Waiting for howdah…' : 'Apply'}
            </button>
            <button type="button" disabled={isBusy || (!isChanged && loaded !== null)} onClick={() => { setOutcome(null); void load(); }}>
              Discard
            </button>
          </div>
          {outcome &&
            (outcome.kind === 'good' ? (
              <Success>{visible(outcome.text)}</Success>
            ) : (
              <Problem>
                {outcome.line != null && <b>Line {outcome.line}, column {outcome.column}: </b>}
                {visible(outcome.text)}
              </Problem>
            ))}
        </div>
        <aside aria-label="Help about the option at the cursor">
          <h2>{help ? visible(help.path) : 'Help'}</h2>
          {help?.description && <p>{help.description}</p>}
          {help?.type && <p>Type: {help.type}</p>}
          {help?.default && <p>Default: <code>{help.default}</code></p>}
          {help && help.options.length > 0 && (
            <dl class="options">
              {help.options.map((option) => (
                <div key={option.name}>
                  <dt><code>{option.name}</code></dt>
                  <dd>{option.description}</dd>
                </div>
              ))}
            </dl>
          )}
        </aside>
      </div>
      {isChanged && (
        <section>
          <h2>Changes</h2>
          <pre class="difference" tabIndex={0} aria-label="Changes">
            {lines.map((line, index) => (
              <div key={index} class={line.kind}>
                {line.kind === 'added' ? '+ ' : line.kind === 'removed' ? '- ' : '  '}
                {visible(line.text)}
              </div>
            ))}
          </pre>
        </section>
      )}
    </>
  );
}

/** Moves the cursor to a position; both numbers start at 1. */
function select(area: HTMLTextAreaElement | null, text: string, line: number, column: number) {
  if (!area) return;
  const lines = text.split('\n');
  const start = lines.slice(0, line - 1).reduce((sum, line) => sum + line.length + 1, 0) + column - 1;
  area.focus();
  area.setSelectionRange(start, Math.min(start + 1, text.length));
  area.scrollTop = (area.scrollHeight / Math.max(lines.length, 1)) * Math.max(line - 5, 0);
}
