// Numbers and texts for people. An application can write lines into its own slow log, so that a value may have another type
// than the one that is written here: it is shown as text, or as a dash.

/** The text with its invisible characters as escapes: control characters, and marks of the writing direction. */
export function visible(text: string | null | undefined): string {
  return String(text ?? '').replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, (character) =>
    `\\u{${character.charCodeAt(0).toString(16)}}`,
  );
}

export function bytes(count: number | null | undefined): string {
  if (typeof count !== 'number') return '–';
  const size = Math.abs(count);
  if (size < 1024) return `${Math.round(count)} B`;
  if (size < 1048576) return `${(count / 1024).toFixed(1)} KiB`;
  if (size < 1073741824) return `${(count / 1048576).toFixed(1)} MiB`;
  return `${(count / 1073741824).toFixed(2)} GiB`;
}

export function seconds(time: number | null | undefined): string {
  if (typeof time !== 'number') return '–';
  if (time < 0.9995) return `${Math.round(time * 1000)} ms`;
  if (time < 120) return `${time.toFixed(1)} s`;
  if (time < 7200) return `${Math.floor(time / 60)} min ${Math.floor(time % 60)} s`;
  return `${Math.floor(time / 3600)} h ${Math.floor((time % 3600) / 60)} min`;
}

export function number(value: number | null | undefined, digits = 0): string {
  if (typeof value !== 'number') return '–';
  return value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** With as many digits as are useful for a rate. */
export function rate(value: number | null | undefined): string {
  if (typeof value !== 'number') return '–';
  return number(value, value > 0 && value < 10 ? 1 : 0);
}

export function percent(share: number | null | undefined): string {
  return typeof share !== 'number' ? '–' : `${Math.round(share * 100)} %`;
}

/** A part of a whole, with a digit more if it is small. */
export function share(part: number, whole: number): string {
  if (whole <= 0 || part <= 0) return '–';
  const percents = (100 * part) / whole;
  return `${percents < 0.1 ? '< 0.1' : number(percents, percents < 10 ? 1 : 0)} %`;
}

export function clock(milliseconds: number): string {
  return new Date(milliseconds).toLocaleTimeString('en-GB');
}

export function moment(milliseconds: number): string {
  const date = new Date(milliseconds);
  return `${date.toLocaleDateString('sv')} ${date.toLocaleTimeString('en-GB')}`;
}
