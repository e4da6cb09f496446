// The strip of positions in their own order, wrapped into rows; past one pixel a cell stands for
// several positions and takes the colour of the one committed last.
import { el, Surface } from "./dom";
import { inscription, lettering, paint, rgb } from "./picture";
import type { Scene } from "./picture";
import { OPEN } from "./run";
import type { Run } from "./run";

const MAX_CELL = 40;
const MIN_CELL = 3;
/** Large cells may take less of the page than small ones need. */
const MAX_HEIGHT = { large: 104, small: 180, lettered: 160 };
/** Cells too small for an outline are pixels, filled where something happens. */
const SMALL = 9;
/** A strip so narrow may be higher, so that a sequence keeps its letters. */
const NARROW = 500;
/** Cells that hold a letter. */
const LETTERED = 15;

interface Grid {
  columns: number;
  cell: number;
  rowHeight: number;
  /** Positions in one cell. */
  group: number;
  cells: number;
}

export class StripView {
  readonly surface: Surface;
  private readonly pixels = el("canvas");
  private grid: Grid = { columns: 1, cell: 1, rowHeight: 1, group: 1, cells: 1 };
  /** Room before each row for the number of its first position, where a sequence is read. */
  private readonly gutter: number;

  constructor(private readonly run: Run) {
    this.surface = new Surface("Strip of positions, coloured by when each was committed", "positions");
    this.gutter = run.isSequence ? 12 + 7 * Math.min(6, run.label(run.length - 1).length) : 0;
  }

  /** The largest cells that fit; several positions a cell where even small ones do not. */
  private measure(width: number): Grid {
    const { length, isSequence } = this.run;
    for (let group = 1; ; group *= 2) {
      const cells = Math.ceil(length / group);
      for (let cell = MAX_CELL; cell >= MIN_CELL; cell -= cell > 12 ? 2 : 1) {
        const columns = Math.max(1, Math.min(cells, Math.floor(width / cell)));
        const rowHeight = cells > columns ? cell : Math.max(cell, Math.min(34, cell * 1.4));
        const isLettered = isSequence && width < NARROW && cell >= LETTERED;
        const room = isLettered ? MAX_HEIGHT.lettered : cell > SMALL ? MAX_HEIGHT.large : MAX_HEIGHT.small;
        if (Math.ceil(cells / columns) * rowHeight <= room) {
          const stretched = cells <= columns ? Math.min(MAX_CELL * 1.5, width / cells) : width / columns;
          return { columns, cell: stretched, rowHeight, group, cells };
        }
      }
    }
  }

  hit(px: number, py: number): number {
    const { columns, cell, rowHeight, group } = this.grid;
    const column = Math.floor((px - this.gutter) / cell);
    const index = Math.floor(py / rowHeight) * columns + column;
    const v = index * group;
    return column >= 0 && column < columns && index >= 0 && v < this.run.length ? v : -1;
  }

  /** Positions that one cell stands for. */
  get group(): number {
    return this.grid.group;
  }

  draw(scene: Scene): void {
    const { surface } = this;
    const width = surface.canvas.clientWidth;
    if (width < 10) return;
    this.grid = this.measure(width - this.gutter);
    const { columns, cell, rowHeight, group, cells } = this.grid;
    const height = Math.ceil(cells / columns) * rowHeight;
    if (surface.canvas.style.height !== `${height}px`) surface.canvas.style.height = `${height}px`;
    surface.fit(width, height);
    surface.clear();
    const { context } = surface;
    if (this.gutter) this.number(scene);
    context.translate(this.gutter, 0);
    if (cell < SMALL) this.drawPixels(scene, height);
    else this.drawCells(scene);
    for (const v of [scene.selected, scene.hovered]) {
      if (v < 0) continue;
      const c = Math.floor(v / group);
      context.strokeStyle = scene.palette.ink;
      context.lineWidth = 2;
      context.strokeRect((c % columns) * cell, Math.floor(c / columns) * rowHeight, cell, rowHeight);
    }
  }

  /** What the first position of each row is called. */
  private number({ palette }: Scene): void {
    const { context } = this.surface;
    const { columns, rowHeight, group, cells } = this.grid;
    context.font = "11px ui-sans-serif, system-ui, sans-serif";
    context.fillStyle = palette.soft;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let c = 0, free = 0; c < cells; c += columns) {
      const y = (Math.floor(c / columns) + 0.5) * rowHeight;
      if (y < free) continue;
      context.fillText(this.run.label(c * group), this.gutter - 8, y + 0.5);
      free = y + 12;
    }
  }

  /** Small cells: one pixel each, enlarged. */
  private drawPixels(scene: Scene, height: number): void {
    const { columns, cell, group, cells } = this.grid;
    const image = new ImageData(columns, Math.ceil(cells / columns));
    for (let c = 0; c < cells; c++) {
      const v = this.speaker(c * group, Math.min(this.run.length, (c + 1) * group));
      const { fill, isNow } = paint(scene, v);
      image.data.set(rgb(isNow ? scene.palette.now : fill), 4 * c);
      image.data[4 * c + 3] = 255;
    }
    this.pixels.width = image.width;
    this.pixels.height = image.height;
    this.pixels.getContext("2d")?.putImageData(image, 0, 0);
    const { context } = this.surface;
    context.imageSmoothingEnabled = false;
    context.drawImage(this.pixels, 0, 0, columns * cell, height);
  }

  /** Large cells: outlined where something happens, lettered where there is room. */
  private drawCells(scene: Scene): void {
    const { run } = this;
    const { context } = this.surface;
    const { columns, cell, rowHeight, group, cells } = this.grid;
    const pad = cell > 12 ? 2 : 1;
    const isLettered = group === 1 && cell >= LETTERED && (run.length <= 60 || run.hasLetters);
    context.font = `600 ${Math.min(14, cell * 0.5)}px ui-sans-serif, system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const rings: [number, number, string][] = [];
    for (let c = 0; c < cells; c++) {
      const v = this.speaker(c * group, Math.min(run.length, (c + 1) * group));
      const x = (c % columns) * cell;
      const y = Math.floor(c / columns) * rowHeight;
      const { fill, ring, isNow } = paint(scene, v);
      context.fillStyle = fill;
      context.fillRect(x + pad / 2, y + pad / 2, cell - pad, rowHeight - pad);
      if (isNow) rings.push([x, y, scene.palette.now]);
      else if (!ring && run.isSequence && run.committed[v] === OPEN) rings.push([x, y, scene.palette.faint]);
      else if (ring) rings.push([x, y, ring]);
      const words = isLettered ? inscription(scene, v, "·") : "";
      if (words && words.length <= Math.max(1, cell / 8)) {
        context.fillStyle = lettering(scene, v, fill);
        context.fillText(words, x + cell / 2, y + rowHeight / 2 + 0.5);
      }
    }
    this.outline(rings, pad);
  }

  private outline(rings: [number, number, string][], pad: number): void {
    const { cell, rowHeight } = this.grid;
    const { context } = this.surface;
    context.lineWidth = cell > 12 ? 2 : 1;
    const inset = pad / 2 + context.lineWidth / 2;
    for (const [x, y, colour] of rings) {
      context.strokeStyle = colour;
      context.strokeRect(x + inset, y + inset, cell - 2 * inset, rowHeight - 2 * inset);
    }
  }

  /** The position that speaks for a cell: the one committed last. */
  private speaker(from: number, until: number): number {
    let best = from;
    for (let v = from + 1; v < until; v++) {
      const [a, b] = [this.run.committed[v], this.run.committed[best]];
      if (a !== OPEN && a > b) best = v;
    }
    return best;
  }
}
