// A few large numbers.

export interface Tile {
  label: string;
  value: string;
  note?: string;
  isBad?: boolean;
}

export function Tiles({ tiles }: { tiles: Tile[] }) {
  return (
    <dl class="tiles">
      {tiles.map((tile) => (
        <div key={tile.label} class={tile.isBad ? 'bad' : ''}>
          <dt>{tile.label}</dt>
          <dd>
            <strong>{tile.value}</strong>
            {tile.note && <span>{tile.note}</span>}
          </dd>
        </div>
      ))}
    </dl>
  );
}
