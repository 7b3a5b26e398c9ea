/**
 * Zoom and pan of the map: the mouse drags, its wheel zooms with Ctrl (as a trackpad's pinch does), two fingers pinch, and
 * plus, minus, 0 and the arrow keys do the same. The wheel alone still scrolls the page.
 */
import { ownKeys } from '../../shell/keyboard.js';
const EDGE = 1.08; // coordinates are from -1 to 1
const LARGEST = 12;
const STEP = 1.6;

export class PanZoom {
  #chart;
  #box;
  #redraw;
  #zoom = 1;
  #x = 0; // the centre of the visible part
  #y = 0;
  #pointers = new Map(); // id -> {x, y} in pixels of the canvas
  #frame = 0;
  #listening = new AbortController();

  /**
   * @param {any} chart of Chart.js, with scales x and y
   * @param {HTMLElement} box around its canvas; has the keyboard's focus
   * @param {(zoom: number) => void} redraw the chart, whose scales have changed; 1 shows all
   */
  constructor(chart, box, redraw) {
    this.#chart = chart;
    this.#box = box;
    this.#redraw = redraw;
    const { canvas } = chart;
    const listen = (target, type, run, options = {}) => {
      target.addEventListener(type, run, { signal: this.#listening.signal, ...options });
    };
    listen(canvas, 'wheel', (event) => this.#onWheel(event), { passive: false });
    listen(canvas, 'pointerdown', (event) => this.#pointers.set(event.pointerId, place(event)));
    listen(canvas, 'pointermove', (event) => this.#onMove(event));
    for (const type of ['pointerup', 'pointercancel', 'pointerleave']) {
      listen(canvas, type, ({ pointerId }) => this.#pointers.delete(pointerId));
    }
    listen(box, 'keydown', ownKeys((event) => this.#onKey(event)));
    this.#apply();
  }

  /** @param {number} factor @param {{x: number, y: number}} [at] pixels of the canvas; the point there stays there */
  by(factor, at) {
    const { width, height } = this.#chart;
    const across = at ? at.x / width - 0.5 : 0;
    const down = at ? at.y / height - 0.5 : 0;
    const before = this.#zoom;
    this.#zoom = Math.max(1, Math.min(before * factor, LARGEST));
    const change = 2 * EDGE * (1 / before - 1 / this.#zoom);
    this.#move(across * change, -down * change);
  }

  reset() {
    this.#zoom = 1;
    this.#move(0, 0);
  }

  end() {
    this.#listening.abort();
    cancelAnimationFrame(this.#frame);
  }

  #onWheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.by(Math.exp(-event.deltaY / 200), place(event));
  }

  #onMove(event) {
    const before = this.#pointers.get(event.pointerId);
    if (!before) return;
    const now = place(event);
    const other = [...this.#pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.#pointers.set(event.pointerId, now);
    if (other) {
      this.by(distance(now, other) / Math.max(distance(before, other), 1), other);
    } else if (this.#zoom > 1) {
      const size = 2 * EDGE / this.#zoom;
      this.#move((before.x - now.x) / this.#chart.width * size, (now.y - before.y) / this.#chart.height * size);
    }
  }

  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = 0.2 * EDGE / this.#zoom;
    const act = {
      '+': () => this.by(STEP), '=': () => this.by(STEP), '-': () => this.by(1 / STEP), 0: () => this.reset(),
      ArrowLeft: () => this.#move(-step, 0), ArrowRight: () => this.#move(step, 0),
      ArrowUp: () => this.#move(0, step), ArrowDown: () => this.#move(0, -step),
    }[event.key];
    if (!act || (event.key.startsWith('Arrow') && this.#zoom === 1)) return;
    event.preventDefault();
    act();
  }

  #move(x, y) {
    const most = EDGE - EDGE / this.#zoom;
    this.#x = Math.max(-most, Math.min(this.#x + x, most));
    this.#y = Math.max(-most, Math.min(this.#y + y, most));
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#apply();
      this.#redraw(this.#zoom);
    });
  }

  #apply() {
    const half = EDGE / this.#zoom;
    const { x, y } = this.#chart.options.scales;
    Object.assign(x, { min: this.#x - half, max: this.#x + half });
    Object.assign(y, { min: this.#y - half, max: this.#y + half });
    this.#box.dataset.zoomed = String(this.#zoom > 1);
  }
}

function place({ offsetX, offsetY }) {
  return { x: offsetX, y: offsetY };
}

function distance(a, b) {
  return Math.hypot(a.x - b.x, a.y - b.y);
}
