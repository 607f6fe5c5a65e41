// Thousands of points on a canvas: hover, choose, select by a rectangle.
import { drawSample, meta } from "./data.js";
import { choice, choose } from "./bus.js";
import { css, fit, make, show } from "./ui.js";
import { drawing, words } from "./export.js";

const PAD = 28, REACH = 14;

export class Scatter {
  /**
   * @param {HTMLCanvasElement} canvas @param {{hover: (i: number | null) => void, height?: number}} settings
   */
  constructor(canvas, { hover, height = 400 }) {
    this.canvas = canvas;
    this.hover = hover;
    this.height = height;
    this.width = 400;
    this.x = /** @type {ArrayLike<number>} */ ([]);
    this.y = this.x;
    this.color = (/** @type {number} */ _) => "#3b7dd8";
    this.axes = /** @type {[string, string]} */ (["", ""]);
    this.lines = false;
    this.pictures = false;
    this.range = { x: [0, 1], y: [0, 1] };
    this.base = make("canvas");
    this.under = /** @type {number | null} */ (null);
    this.drag = /** @type {{x: number, y: number, x2: number, y2: number} | null} */ (null);
    this.frames = /** @type {number[]} */ ([]);
    this.dots = /** @type {Map<string, HTMLCanvasElement>} */ (new Map());
    this.pending = false;
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointerleave", () => { if (!this.drag) { this.under = null; this.hover(null); this.overlay(); } });
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(/** @type {Element} */ (canvas.parentElement));
  }

  /** @param {ArrayLike<number>} x @param {ArrayLike<number>} y @param {(i: number) => string} color */
  put(x, y, color) {
    this.x = x;
    this.y = y;
    this.color = color;
    for (const axis of /** @type {("x" | "y")[]} */ (["x", "y"])) {
      let low = Infinity, high = -Infinity;
      for (let i = 0; i < this[axis].length; i++) { low = Math.min(low, this[axis][i]); high = Math.max(high, this[axis][i]); }
      const room = (high - low || 1) * 0.04;
      this.range[axis] = [low - room, high + room];
    }
    this.draw();
  }
  /** @param {number} i */
  px(i) { return PAD + ((this.x[i] - this.range.x[0]) / (this.range.x[1] - this.range.x[0])) * (this.width - PAD - 8); }
  /** @param {number} i */
  py(i) { return this.height - PAD - ((this.y[i] - this.range.y[0]) / (this.range.y[1] - this.range.y[0])) * (this.height - PAD - 8); }

  /** A dot, drawn once per color. @param {string} color */
  dot(color) {
    let made = this.dots.get(color);
    if (!made) {
      made = make("canvas");
      const context = fit(made, 8, 8);
      context.fillStyle = color;
      context.globalAlpha = 0.85;
      context.beginPath();
      context.arc(4, 4, this.x.length > 2500 ? 2.4 : 3.4, 0, 2 * Math.PI);
      context.fill();
      this.dots.set(color, made);
    }
    return made;
  }

  draw() {
    this.width = Math.max(240, this.canvas.parentElement?.clientWidth ?? 400);
    const context = fit(this.base, this.width, this.height);
    this.dots.clear();
    context.font = "11px sans-serif";
    context.fillStyle = css("--soft");
    context.fillText(this.axes[0], PAD, this.height - 8);
    context.save();
    context.translate(12, this.height - PAD);
    context.rotate(-Math.PI / 2);
    context.fillText(this.axes[1], 0, 0);
    context.restore();
    if (this.lines) {
      for (const axis of ["x", "y"]) {
        const [low, high] = this.range[/** @type {"x" | "y"} */ (axis)], share = -low / (high - low);
        context.fillStyle = css("--soft");
        context.fillText(show(high, 2), axis === "x" ? this.width - 34 : 2, axis === "x" ? this.height - 8 : 14);
        context.fillStyle = css("--line");
        if (share > 0 && share < 1) axis === "x" ? context.fillRect(PAD + share * (this.width - PAD - 8), 8, 1, this.height - PAD - 8)
          : context.fillRect(PAD, this.height - PAD - share * (this.height - PAD - 8), this.width - PAD - 8, 1);
      }
    }
    const again = () => { this.draw(); };
    for (let i = 0; i < this.x.length; i++) {
      if (this.pictures && meta.kind === "image") drawSample(context, i, this.px(i) - 9, this.py(i) - 9, 18, again);
      else context.drawImage(this.dot(this.color(i)), this.px(i) - 4, this.py(i) - 4, 8, 8);
    }
    this.overlay();
  }

  /** The points, and on them what is chosen; this runs while the reader drags. */
  overlay() {
    const start = performance.now();
    const context = fit(this.canvas, this.width, this.height);
    const brush = choice.brush;
    context.globalAlpha = brush ? 0.25 : 1;
    context.drawImage(this.base, 0, 0, this.width, this.height);
    context.globalAlpha = 1;
    if (brush) for (const i of brush) {
      if (this.pictures && meta.kind === "image") drawSample(context, i, this.px(i) - 9, this.py(i) - 9, 18, () => {});
      else context.drawImage(this.dot(this.color(i)), this.px(i) - 4, this.py(i) - 4, 8, 8);
    }
    for (const [i, radius] of /** @type {[number | null, number][]} */ ([[choice.sample, 8], [this.under, 6]])) {
      if (i === null || i >= this.x.length) continue;
      context.strokeStyle = css("--ink");
      context.lineWidth = 2;
      context.beginPath();
      context.arc(this.px(i), this.py(i), radius, 0, 2 * Math.PI);
      context.stroke();
    }
    if (this.drag) {
      context.fillStyle = css("--veil");
      const { x, y, x2, y2 } = this.drag;
      context.fillRect(x, y, x2 - x, y2 - y);
      context.strokeStyle = css("--link");
      context.lineWidth = 1;
      context.strokeRect(x, y, x2 - x, y2 - y);
    }
    this.frames.push(performance.now() - start);
  }

  /** @param {number} x @param {number} y */
  nearest(x, y) {
    let best = null, least = REACH * REACH;
    for (let i = 0; i < this.x.length; i++) {
      const d = (this.px(i) - x) ** 2 + (this.py(i) - y) ** 2;
      if (d < least) { least = d; best = i; }
    }
    return best;
  }
  /** @param {MouseEvent} event @returns {[number, number]} */
  at(event) { const box = this.canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; }
  /** @param {PointerEvent} event */
  move(event) {
    const [x, y] = this.at(event);
    if (this.drag) {
      this.drag.x2 = x;
      this.drag.y2 = y;
      if (!this.pending) { this.pending = true; requestAnimationFrame(() => { this.pending = false; if (this.drag) this.brush(); }); }
      return;
    }
    this.under = this.nearest(x, y);
    this.hover(this.under);
    this.overlay();
  }
  /** @param {PointerEvent} event */
  press(event) {
    const [x, y] = this.at(event);
    if (event.pointerType === "touch") { this.under = this.nearest(x, y); return; }
    this.drag = { x, y, x2: x, y2: y };
    this.canvas.setPointerCapture(event.pointerId);
  }
  /** @param {PointerEvent} event */
  release(event) {
    const [x, y] = this.at(event), drag = this.drag;
    this.drag = null;
    if (!drag || Math.hypot(x - drag.x, y - drag.y) < 5) {
      const found = this.nearest(x, y);
      choose(found === null ? { brush: null } : { sample: found });
    }
    this.overlay();
  }
  /** Choose the points in the rectangle. */
  brush() {
    if (!this.drag) return;
    const start = performance.now();
    const { x, y, x2, y2 } = this.drag, inside = new Set();
    for (let i = 0; i < this.x.length; i++) {
      const px = this.px(i), py = this.py(i);
      if (px >= Math.min(x, x2) && px <= Math.max(x, x2) && py >= Math.min(y, y2) && py <= Math.max(y, y2)) inside.add(i);
    }
    choose({ brush: inside.size ? inside : null });
    this.overlay();
    this.frames.push(performance.now() - start);
  }
  /** @param {KeyboardEvent} event */
  key(event) {
    const signs = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const sign = signs[/** @type {keyof typeof signs} */ (event.key)];
    if (event.key === "Escape") choose({ brush: null });
    if (!sign) return;
    event.preventDefault();
    const from = choice.sample, fx = this.px(from), fy = this.py(from);
    let best = from, least = Infinity;
    for (let i = 0; i < this.x.length; i++) {
      const dx = this.px(i) - fx, dy = this.py(i) - fy, along = dx * sign[0] + dy * sign[1], aside = Math.abs(dx * sign[1]) + Math.abs(dy * sign[0]);
      if (along > 0.01 && along + 2 * aside < least) { least = along + 2 * aside; best = i; }
    }
    choose({ sample: best });
    this.hover(best);
  }
  svg() {
    let inside = "";
    for (let i = 0; i < this.x.length; i++) inside += `<circle cx="${this.px(i).toFixed(1)}" cy="${this.py(i).toFixed(1)}" r="3" fill="${this.color(i)}" fill-opacity="0.85"/>`;
    return drawing(this.width, this.height, inside + words(PAD, this.height - 8, this.axes[0]) + words(12, this.height - PAD, this.axes[1], `transform="rotate(-90 12 ${this.height - PAD})"`));
  }
}
