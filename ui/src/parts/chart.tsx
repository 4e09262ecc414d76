// Lines over time, with marks. The same times, marks and cursor for all charts of a page.

import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { colour, useColours } from '../model/theme';
import type { Mark } from '../model/types';

export interface Line {
  label: string;
  values: (number | null)[];
}

interface ChartProps {
  title: string;
  times: number[];
  lines: Line[];
  marks: Mark[];
  /** These are drawn as solid lines. */
  chosen: Mark[];
  /** A value with its unit. */
  format: (value: number | null | undefined) => string;
}

/** Colours of app.css, with a dash for each: lines differ without colours, too. */
const STYLES: { colour: string; dash: number[] }[] = [
  { colour: 'blue', dash: [] },
  { colour: 'vermillion', dash: [6, 3] },
  { colour: 'green', dash: [2, 2] },
  { colour: 'orange', dash: [8, 2, 2, 2] },
  { colour: 'sky', dash: [1, 3] },
  { colour: 'dim', dash: [4, 4] },
];
const HEIGHT = 170;

export function Chart({ title, times, lines, marks, chosen, format }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef({ marks, chosen });
  shown.current = { marks, chosen };
  const turn = useColours();
  const labels = lines.map((line) => line.label).join('\n');

  useEffect(() => {
    const parent = place.current;
    if (!parent) return;
    const axis = { stroke: colour('dim'), grid: { stroke: colour('line'), width: 1 }, ticks: { stroke: colour('line'), width: 1 } };
    const options: uPlot.Options = {
      width: parent.clientWidth,
      height: HEIGHT,
      cursor: { sync: { key: 'history' }, drag: { x: false, y: false } },
      scales: { y: { range: (_, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [
        { ...axis, values: '{HH}:{mm}' },
        { ...axis, size: 70, values: (_, values) => values.map((value) => format(value)) },
      ],
      series: [
        { value: '{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}' },
        ...labels.split('\n').map((label, index) => {
          const style = STYLES[index % STYLES.length]!;
          return {
            label,
            stroke: colour(style.colour),
            width: 2,
            dash: style.dash,
            points: { size: 5 },
            spanGaps: false,
            value: (_: uPlot, value: number | null) => format(value),
          };
        }),
      ],
      hooks: {
        draw: [
          (plot) => {
            drawMarks(plot, shown.current.marks, shown.current.chosen);
            showLast(plot);
          },
        ],
      },
    };
    plot.current = new uPlot(options, dataOf(times, lines), parent);
    const observer = new ResizeObserver(() => {
      if (plot.current && parent.clientWidth !== plot.current.width) plot.current.setSize({ width: parent.clientWidth, height: HEIGHT });
    });
    observer.observe(parent);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [turn, labels]);
  useEffect(() => {
    plot.current?.setData(dataOf(times, lines));
  }, [times, lines, turn, chosen]);

  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <div ref={place} role="img" aria-label={summary(title, lines, format)} />
    </figure>
  );
}

function dataOf(times: number[], lines: Line[]): uPlot.AlignedData {
  return [times, ...lines.map((line) => line.values)];
}

/** Without a cursor, the legend shows the last values that are known. */
function showLast(plot: uPlot) {
  const [times, ...lines] = plot.data;
  const last = times.findLastIndex((_, index) => lines.some((values) => values[index] != null));
  if (plot.cursor.idx == null && last >= 0) plot.setLegend({ idx: last });
}

function drawMarks(plot: uPlot, marks: Mark[], chosen: Mark[]) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour('purple');
  ctx.fillStyle = colour('purple');
  ctx.lineWidth = devicePixelRatio;
  for (const mark of marks) {
    ctx.setLineDash(chosen.some((one) => isSame(one, mark)) ? [] : [3 * devicePixelRatio, 3 * devicePixelRatio]);
    const x = Math.round(plot.valToPos(mark.time, 'x', true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const size = 4 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x - size, bbox.top);
    ctx.lineTo(x + size, bbox.top);
    ctx.lineTo(x, bbox.top + 1.5 * size);
    ctx.fill();
  }
  ctx.restore();
}

/** Each answer of the server has other objects. */
export function isSame(one: Mark, other: Mark): boolean {
  return one.time === other.time && one.kind === other.kind && one.application === other.application;
}

/** The chart for those who do not see it. */
function summary(title: string, lines: Line[], format: ChartProps['format']): string {
  const parts = lines.map(({ label, values }) => {
    const known = values.filter((value) => value !== null);
    if (known.length === 0) return `${label}: not known`;
    return `${label}: last ${format(known[known.length - 1])}, highest ${format(Math.max(...known))}`;
  });
  return `${title}. ${parts.join('; ')}.`;
}
