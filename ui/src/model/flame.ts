// Profiles: parts that are added up, and the tree that a flame graph shows.

import type { ProfilePart } from './types';

export interface Profile {
  application: string;
  start: number;
  seconds: number;
  samples: number;
  /** The number of samples of each stack: names joined with a line feed, outermost first. */
  stacks: Map<string, number>;
}

export interface Node {
  name: string;
  file: string;
  samples: number;
  /** In the other profile, as a number of samples of this one. */
  other: number;
  children: Node[];
}

const SEPARATOR = '\n';
const PART = '\u0000';

export function emptyProfile(application: string): Profile {
  return { application, start: Date.now(), seconds: 0, samples: 0, stacks: new Map() };
}

/** The profile with one more part. */
export function added(profile: Profile, part: ProfilePart, seconds: number): Profile {
  const stacks = new Map(profile.stacks);
  for (const [indexes, count] of part.stacks) {
    const key = indexes.map((index) => `${part.frames[index]?.name ?? ''}${PART}${part.frames[index]?.file ?? ''}`).join(SEPARATOR);
    stacks.set(key, (stacks.get(key) ?? 0) + count);
  }
  return { ...profile, seconds: profile.seconds + seconds, samples: profile.samples + part.samples, stacks };
}

/** The tree of a profile. With another profile, both have the same number of samples in it. */
export function tree(profile: Profile, other?: Profile): Node {
  const root: Node = { name: 'all', file: '', samples: profile.samples, other: 0, children: [] };
  const scale = other && other.samples > 0 ? profile.samples / other.samples : 0;
  insert(root, profile.stacks, 1, 0);
  if (other) {
    root.other = profile.samples;
    insert(root, other.stacks, 0, scale);
  }
  order(root);
  return root;
}

function insert(root: Node, stacks: Map<string, number>, samples: number, other: number) {
  for (const [key, count] of stacks) {
    let node = root;
    for (const entry of key.split(SEPARATOR)) {
      const [name = '', file = ''] = entry.split(PART);
      let child = node.children.find((child) => child.name === name && child.file === file);
      if (!child) {
        child = { name, file, samples: 0, other: 0, children: [] };
        node.children.push(child);
      }
      child.samples += count * samples;
      child.other += count * other;
      node = child;
    }
  }
}

function order(node: Node) {
  node.children.sort((one, other) => (one.name < other.name ? -1 : 1));
  node.children.forEach(order);
}

/** The functions that were innermost most often. */
export function busiest(profile: Profile, most: number): { name: string; share: number }[] {
  const sorted = [...shares(profile)].sort(([, one], [, other]) => other - one).slice(0, most);
  return sorted.map(([name, share]) => ({ name, share }));
}

export interface Changed {
  name: string;
  /** Its share of this profile's samples. */
  share: number;
  /** Its share of the other one's. */
  before: number;
}

/** The functions whose own share changed most. */
export function changed(profile: Profile, other: Profile, most: number): Changed[] {
  const [now, before] = [shares(profile), shares(other)];
  const names = [...new Set([...now.keys(), ...before.keys()])];
  const all = names.map((name): Changed => ({ name, share: now.get(name) ?? 0, before: before.get(name) ?? 0 }));
  const change = (one: Changed) => Math.abs(one.share - one.before);
  return all.filter((one) => change(one) > 0).sort((one, other) => change(other) - change(one)).slice(0, most);
}

/** Of each function that was innermost. A wait in the kernel counts for the function that waits. */
function shares(profile: Profile): Map<string, number> {
  const counts = new Map<string, number>();
  for (const [key, count] of profile.stacks) {
    const names = key.split(SEPARATOR).map((entry) => entry.split(PART)[0] ?? '');
    const name = names.findLast((name) => !name.startsWith('[')) ?? names[names.length - 1] ?? '';
    counts.set(name, (counts.get(name) ?? 0) + count / Math.max(profile.samples, 1));
  }
  return counts;
}
