// A table that scrolls by itself on a narrow screen.

import type { ComponentChildren } from 'preact';

export interface Column<Row> {
  title: string;
  /** Numbers are at the right. */
  isNumber?: boolean;
  cell: (row: Row) => ComponentChildren;
}

interface TableProps<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row, index: number) => string;
  /** The text of a table without rows. */
  empty: string;
  /** More about a row, below it. */
  below?: (row: Row) => ComponentChildren;
}

export function Table<Row>({ label, columns, rows, keyOf, empty, below }: TableProps<Row>) {
  if (rows.length === 0) return <p class="empty">{empty}</p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.title} scope="col" class={column.isNumber ? 'number' : ''}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => {
            const more = below?.(row);
            return [
              <tr key={keyOf(row, index)}>
                {columns.map((column) => (
                  <td key={column.title} data-title={column.title} class={column.isNumber ? 'number' : ''}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>,
              more && (
                <tr key={`${keyOf(row, index)} below`} class="below">
                  <td colSpan={columns.length}>{more}</td>
                </tr>
              ),
            ];
          })}
        </tbody>
      </table>
    </div>
  );
}
