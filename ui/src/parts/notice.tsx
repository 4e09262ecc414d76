// What went wrong, and what to do.

import type { ComponentChildren } from 'preact';

export function Problem({ children }: { children: ComponentChildren }) {
  return (
    <p class="notice problem" role="alert">
      {children}
    </p>
  );
}

export function Success({ children }: { children: ComponentChildren }) {
  return (
    <p class="notice success" role="status">
      {children}
    </p>
  );
}

export function Hint({ children }: { children: ComponentChildren }) {
  return <p class="notice hint">{children}</p>;
}
