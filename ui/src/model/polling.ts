// Values that are read again and again while the page is visible.

import { useEffect, useRef, useState } from 'preact/hooks';
import { read } from './session';

export interface Polled<T> {
  value?: T;
  /** The value before, for rates. */
  former?: T;
  error?: Error;
  reload: () => void;
}

/** Reads a path at once, and then each `period` milliseconds; without a path nothing. */
export function usePolled<T>(path: string | null, period: number): Polled<T> {
  const [state, setState] = useState<{ path?: string | null; value?: T; former?: T; error?: Error }>({});
  const [turn, setTurn] = useState(0);
  const current = useRef(state);
  current.current = state;
  useEffect(() => {
    if (path == null) return;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const again = () => {
      if (period > 0 && !controller.signal.aborted) timer = setTimeout(step, period);
    };
    const step = async () => {
      if (document.hidden) return again();
      try {
        const value = await read<T>(path, controller.signal);
        const former = current.current.path === path ? current.current.value : undefined;
        if (!controller.signal.aborted) setState({ path, value, ...(former !== undefined && { former }) });
      } catch (error) {
        const kept = current.current.path === path ? current.current : {};
        if (!controller.signal.aborted) setState({ ...kept, path, error: error as Error });
      }
      again();
    };
    void step();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [path, period, turn]);
  const { value, former, error } = state.path === path ? state : { value: undefined, former: undefined, error: undefined };
  return {
    ...(value !== undefined && { value }),
    ...(former !== undefined && { former }),
    ...(error && { error }),
    reload: () => setTurn((turn) => turn + 1),
  };
}
