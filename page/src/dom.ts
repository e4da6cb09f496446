// Building elements. Text only ever goes in as text: nothing in a trace becomes markup.

type Child = Node | string | null;

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  for (const child of children) if (child !== null) made.append(child);
  return made;
}

/** A canvas that fits its box at the screen's resolution, or null where there is no drawing. */
export class Surface {
  readonly canvas: HTMLCanvasElement;
  readonly context: CanvasRenderingContext2D;
  width = 0;
  height = 0;

  constructor(label: string, className: string) {
    this.canvas = el("canvas", { class: className, role: "img", "aria-label": label });
    const context = this.canvas.getContext("2d");
    if (!context) throw new NoCanvas();
    this.context = context;
  }

  /** Match the box; say whether the size changed. */
  fit(width = this.canvas.clientWidth, height = this.canvas.clientHeight): boolean {
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    const changed = this.canvas.width !== w || this.canvas.height !== h;
    if (changed) {
      this.canvas.width = w;
      this.canvas.height = h;
    }
    this.width = width;
    this.height = height;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return changed;
  }

  clear(): void {
    this.context.clearRect(0, 0, this.width, this.height);
  }
}

export class NoCanvas extends Error {
  constructor() {
    super("This browser cannot draw on a canvas, so the run is given as a table.");
  }
}

const grouped = new Intl.NumberFormat("en-US");

/** 16384 -> 16,384 */
export const count = (value: number): string => grouped.format(value);

/** "1 probe", "3 probes" */
export const plural = (value: number, noun: string, nouns = `${noun}s`): string =>
  `${count(value)} ${value === 1 ? noun : nouns}`;
