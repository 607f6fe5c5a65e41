// Small parts of the page: elements, numbers, colors, samples as buttons.
import { describe, drawSample, labelName, labels, meta, sampleName } from "./data.js";
import { choice, choose, on } from "./bus.js";

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag @param {Record<string, any>} [settings] @param {(Node | string)[]} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function make(tag, settings = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) {
    if (name in made) Object.assign(made, { [name]: value }); else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
/** @param {string} id */
export const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** A number as people read it. @param {number | null | undefined} x @param {number} [digits] */
export function show(x, digits = 3) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  const size = Math.abs(x);
  const text = size !== 0 && (size < 1e-3 || size >= 1e6) ? x.toExponential(digits - 1) : String(Number(x.toPrecision(digits)));
  return text.replace("-", "−");
}
/** @param {number | null | undefined} x */
export const percent = (x) => (x === null || x === undefined ? "–" : `${(100 * x).toFixed(1)} %`);

// Colors: one per class, and a scale from dark to bright (viridis).
const CLASSES = ["#3b7dd8", "#e8833a", "#3d9b5f", "#d1495b", "#8b62c9", "#8a6a4f", "#d879b3", "#75808f", "#b5a22d", "#2ba6b8"];
const SCALE = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121],
  [109, 205, 89], [180, 222, 44], [253, 231, 37]];
/** @param {number} c */
export const classColor = (c) => (meta.classes.length <= CLASSES.length ? CLASSES[c] : `hsl(${Math.round((c * 137.508) % 360)} 60% 50%)`);
/** @param {number} t from 0 to 1 @returns {[number, number, number]} */
export function tone(t) {
  const x = Math.max(0, Math.min(1, Number.isFinite(t) ? t : 0)) * (SCALE.length - 1);
  const low = Math.min(SCALE.length - 2, Math.floor(x)), part = x - low;
  const [a, b] = [SCALE[low], SCALE[low + 1]];
  return [Math.round(a[0] + part * (b[0] - a[0])), Math.round(a[1] + part * (b[1] - a[1])), Math.round(a[2] + part * (b[2] - a[2]))];
}
/** @param {number} i */
export const colorOf = (i) => (labels ? classColor(labels[i]) : "#3b7dd8");
/** @param {string} name */
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Values between which most lie, for a scale of colors. @param {ArrayLike<number>} values */
export function spread(values) {
  const sorted = Float32Array.from(values).sort();
  const at = (/** @type {number} */ q) => sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(q * (sorted.length - 1))))];
  return [at(0.01), at(0.99) > at(0.01) ? at(0.99) : at(0.01) + 1];
}

/**
 * Fit a canvas to its element at the screen's resolution.
 * @param {HTMLCanvasElement} canvas @param {number} width @param {number} height @returns {CanvasRenderingContext2D}
 */
export function fit(canvas, width, height) {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** A sample's picture or text. @param {number} i @param {number} side */
export function picture(i, side) {
  if (meta.kind !== "image") {
    const text = meta.texts[i] || sampleName(i);
    return make("span", { className: "words", dir: "auto", title: text }, text);
  }
  const canvas = make("canvas", { className: "pixels", ariaHidden: "true" });
  const draw = () => drawSample(fit(canvas, side, side), i, 0, 0, side, draw);
  draw();
  return canvas;
}

/** A sample that can be chosen. @param {number} i @param {string} note @param {string} [kind] @param {number} [side] */
export function sampleButton(i, note, kind = "", side = 56) {
  const label = labelName(i);
  const caption = make("span", { className: "caption" });
  if (note) caption.append(make("b", { className: kind }, note));
  if (label) caption.append(make("span", { className: "tag" }, labels ? make("i", { className: "dot" }) : "", make("span", { className: "label", dir: "auto" }, label)));
  const dot = caption.querySelector("i");
  if (dot) dot.style.background = colorOf(i);
  const button = make("button", { type: "button", className: `sample ${meta.kind}`, title: describe(i) }, picture(i, side), caption);
  button.setAttribute("aria-label", [describe(i), note].filter(Boolean).join(", "));
  button.dataset.sample = String(i);
  button.addEventListener("click", () => choose({ sample: i }));
  return button;
}
on(["sample"], () => markChosen(document));
/** @param {ParentNode} where */
export function markChosen(where) {
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (where.querySelectorAll("button.sample"))) {
    button.classList.toggle("chosen", Number(button.dataset.sample) === choice.sample);
  }
}

/** @param {HTMLElement} holder @param {[number, string, string?][]} samples @param {number} [side] */
export function gallery(holder, samples, side) {
  holder.classList.add("gallery");
  holder.replaceChildren(...samples.map(([i, note, kind]) => sampleButton(i, note, kind, side)));
  markChosen(holder);
}

/** @param {string} label @param {[string, string][]} options @param {string} value @param {(value: string) => void} call */
export function select(label, options, value, call) {
  const box = make("select", {}, ...options.map(([name, text]) => make("option", { value: name }, text)));
  box.value = value;
  box.addEventListener("change", () => call(box.value));
  return { element: make("label", {}, `${label} `, box), box };
}

/** The pairs of names and values under a heading. @param {HTMLElement} holder @param {[string, string | Node][]} facts */
export function listFacts(holder, facts) {
  holder.replaceChildren(...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}
