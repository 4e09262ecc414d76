// Light or dark: as the system has it, until the user chooses.

import { useEffect, useState } from 'preact/hooks';

const THEMES = ['auto', 'light', 'dark'] as const;
const KEY = 'howdah-theme';

/** The theme that was chosen, and the function that chooses the next one. */
export function useTheme(): [string, () => void] {
  const [theme, setTheme] = useState(() => localStorage.getItem(KEY) ?? 'auto');
  useEffect(() => {
    document.documentElement.dataset['theme'] = theme;
    dispatchEvent(new Event('howdah-theme'));
  }, [theme]);
  const next = () => {
    const following = THEMES[(THEMES.indexOf(theme as (typeof THEMES)[number]) + 1) % THEMES.length] ?? 'auto';
    localStorage.setItem(KEY, following);
    setTheme(following);
  };
  return [theme, next];
}

/** A number that changes whenever the colours do. */
export function useColours(): number {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const change = () => setTurn((turn) => turn + 1);
    const system = matchMedia('(prefers-color-scheme: dark)');
    system.addEventListener('change', change);
    addEventListener('howdah-theme', change);
    return () => {
      system.removeEventListener('change', change);
      removeEventListener('howdah-theme', change);
    };
  }, []);
  return turn;
}

/** The value of a colour of app.css. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
