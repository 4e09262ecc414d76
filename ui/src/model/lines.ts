// The lines that two texts differ in.

export interface DiffLine {
  kind: 'same' | 'removed' | 'added' | 'gap';
  text: string;
}

const CONTEXT = 2;
/** Beyond this product of line counts, the middle of two texts is not compared line by line. */
const MOST_PAIRS = 4_000_000;

/** A difference with some lines of context. Empty if the texts are the same. */
export function difference(before: string, after: string): DiffLine[] {
  const [one, other] = [before.trimEnd().split('\n'), after.trimEnd().split('\n')];
  let start = 0;
  while (start < one.length && start < other.length && one[start] === other[start]) start++;
  let end = 0;
  while (end < one.length - start && end < other.length - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end++;
  if (start === one.length && start === other.length) return [];
  const same = (text: string): DiffLine => ({ kind: 'same', text });
  const middle = compare(one.slice(start, one.length - end), other.slice(start, other.length - end));
  return shortened([...one.slice(0, start).map(same), ...middle, ...one.slice(one.length - end).map(same)]);
}

/** By the longest common subsequence. */
function compare(one: string[], other: string[]): DiffLine[] {
  const removed = (text: string): DiffLine => ({ kind: 'removed', text });
  const added = (text: string): DiffLine => ({ kind: 'added', text });
  if (one.length * other.length > MOST_PAIRS) return [...one.map(removed), ...other.map(added)];
  const width = other.length + 1;
  const longest = new Uint32Array((one.length + 1) * width);
  const at = (i: number, j: number) => longest[i * width + j] ?? 0;
  for (let i = one.length - 1; i >= 0; i--) {
    for (let j = other.length - 1; j >= 0; j--) {
      longest[i * width + j] = one[i] === other[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      lines.push({ kind: 'same', text: one[i++]! });
      j++;
    } else if (i < one.length && (j === other.length || at(i + 1, j) >= at(i, j + 1))) {
      lines.push(removed(one[i++]!));
    } else {
      lines.push(added(other[j++]!));
    }
  }
  return lines;
}

function shortened(lines: DiffLine[]): DiffLine[] {
  const isNear = lines.map((_, index) => lines.slice(Math.max(0, index - CONTEXT), index + CONTEXT + 1).some((line) => line.kind !== 'same'));
  return lines.flatMap((line, index): DiffLine[] => {
    if (isNear[index]) return [line];
    return isNear[index - 1] || index === 0 ? [{ kind: 'gap', text: '…' }] : [];
  });
}
