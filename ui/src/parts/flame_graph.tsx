// A flame graph: the outermost function at the top, its width the share of samples. A click or Enter zooms.

import { useState } from 'preact/hooks';
import { number, visible } from '../model/format';
import type { Node } from '../model/flame';

interface Bar {
  node: Node;
  path: Node[];
  left: number;
  width: number;
  depth: number;
}

/** Narrower bars are not shown: the share of the graph's width. */
const NARROWEST = 0.002;
const ROW = 26;
const DEEPEST = 120;

export function FlameGraph({ root, isDifference }: { root: Node; isDifference: boolean }) {
  const [zoomed, setZoomed] = useState<Node[]>([]);
  // After more samples, the nodes are others: find the same path again.
  const path = follow(root, zoomed);
  const top = path[path.length - 1] ?? root;
  const bars: Bar[] = [];
  layOut(top, path, 0, 1, 0, bars);
  const height = (Math.max(...bars.map((bar) => bar.depth)) + 1) * ROW;
  const total = Math.max(root.samples, root.other, 1);
  return (
    <div class="flame">
      {path.length > 0 && (
        <p>
          <button type="button" class="small" onClick={() => setZoomed([])}>Whole graph</button>{' '}
          <button type="button" class="small" onClick={() => setZoomed(path.slice(0, -1))}>One up</button>
        </p>
      )}
      <div class="bars" style={{ height: `${height}px` }} role="group" aria-label="Flame graph">
        {bars.map((bar, index) => (
          <button
            type="button"
            key={index}
            class={isDifference ? `frame ${changeClass(bar.node)}` : `frame tone${tone(bar.node.name)}`}
            style={{ left: `${bar.left * 100}%`, width: `${bar.width * 100}%`, top: `${bar.depth * ROW}px` }}
            title={description(bar.node, total, isDifference)}
            aria-label={description(bar.node, total, isDifference)}
            onClick={() => setZoomed(bar.path)}
          >
            {bar.width > 0.015 ? visible(bar.node.name) : ''}
          </button>
        ))}
      </div>
    </div>
  );
}

function layOut(node: Node, path: Node[], left: number, width: number, depth: number, bars: Bar[]) {
  bars.push({ node, path, left, width, depth });
  const whole = size(node);
  if (depth >= DEEPEST || whole === 0) return;
  let at = left;
  for (const child of node.children) {
    const share = (width * size(child)) / whole;
    if (share >= NARROWEST) layOut(child, [...path, child], at, share, depth + 1, bars);
    at += share;
  }
}

/** In a difference, a function that only one profile has must be seen, too. */
function size(node: Node): number {
  return Math.max(node.samples, node.other, node.children.reduce((sum, child) => sum + Math.max(child.samples, child.other), 0));
}

function follow(root: Node, path: Node[]): Node[] {
  const found: Node[] = [];
  let node: Node | undefined = root;
  for (const wanted of path) {
    node = node.children.find((child) => child.name === wanted.name && child.file === wanted.file);
    if (!node) break;
    found.push(node);
  }
  return found;
}

function description(node: Node, total: number, isDifference: boolean): string {
  const share = `${((100 * node.samples) / total).toFixed(1)} %`;
  const before = isDifference ? `, before ${((100 * node.other) / total).toFixed(1)} %` : `, ${number(node.samples)} samples`;
  return `${visible(node.name)}${node.file ? ` in ${visible(node.file)}` : ''}: ${share}${before}`;
}

/** The same name always has the same tone. */
function tone(name: string): number {
  if (name.startsWith('[')) return 5;
  let hash = 0;
  for (const character of name) hash = (hash * 31 + character.charCodeAt(0)) % 9973;
  return hash % 5;
}

function changeClass(node: Node): string {
  const change = (node.samples - node.other) / Math.max(node.samples, node.other, 1);
  if (Math.abs(change) < 0.1) return 'same';
  return change > 0 ? (change > 0.5 ? 'much-more' : 'more') : change < -0.5 ? 'much-less' : 'less';
}
