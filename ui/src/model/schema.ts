// Help about the option at the cursor, from the JSON Schema.

import { getLocation } from 'jsonc-parser';

type Schema = { [member: string]: unknown } & {
  $ref?: string;
  $defs?: Record<string, Schema>;
  description?: string;
  type?: string | string[];
  enum?: unknown[];
  default?: unknown;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  if?: Schema;
  then?: Schema;
  else?: Schema;
};

export interface Help {
  path: string;
  description: string;
  type: string;
  default: string;
  /** The options that an object at this place may have. */
  options: { name: string; description: string }[];
}

/** Help about the place at the offset of a text. */
export function helpAt(schema: Schema, text: string, offset: number): Help {
  const { path, isAtPropertyKey } = getLocation(text, offset);
  // A key that is being written is no option yet.
  const segments = isAtPropertyKey && candidates(schema, path).length === 0 ? path.slice(0, -1) : path;
  const found = candidates(schema, segments);
  const text_ = (of: (one: Schema) => string | undefined) => found.map(of).find(Boolean) ?? '';
  const options = new Map<string, string>();
  for (const one of found) {
    for (const [name, option] of Object.entries(one.properties ?? {})) {
      options.set(name, plain(option.description ?? alternatives(schema, option).map((one) => one.description).find(Boolean) ?? ''));
    }
  }
  return {
    path: segments.join('/') || 'the configuration',
    description: plain(text_((one) => one.description)),
    type: text_((one) => (typeof one['x-type'] === 'string' ? one['x-type'] : one.enum ? one.enum.map((value) => JSON.stringify(value)).join(', ') : [one.type ?? []].flat().join(' or '))),
    default: text_((one) => (one.default === undefined ? undefined : JSON.stringify(one.default))),
    options: [...options].map(([name, description]) => ({ name, description })),
  };
}

/** The schemas that may describe the value at this path. */
function candidates(schema: Schema, path: (string | number)[]): Schema[] {
  let found = alternatives(schema, schema);
  for (const segment of path) {
    found = found.flatMap((one) => {
      const below = typeof segment === 'number' ? one.items : (one.properties?.[segment] ?? one.additionalProperties);
      return below && typeof below === 'object' ? alternatives(schema, below) : [];
    });
  }
  return found;
}

/** A schema with all that it refers to. */
function alternatives(root: Schema, schema: Schema, depth = 0): Schema[] {
  if (depth > 12) return [];
  const target = schema.$ref?.startsWith('#/$defs/') ? root.$defs?.[schema.$ref.slice('#/$defs/'.length)] : undefined;
  const others = [target, ...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? []), schema.then, schema.else];
  return [schema, ...others.filter((one) => one !== undefined).flatMap((one) => alternatives(root, one, depth + 1))];
}

/** Without the marks and links of Markdown. */
function plain(text: string): string {
  return text.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').replaceAll('`', '');
}

export type { Schema };
