// The samples in the plane, colored by what the reader asks for.
import { describe, get, has, labels, maybe, meta } from "./data.js";
import { choice, choose, on, state } from "./bus.js";
import { byId, classColor, colorOf, gallery, make, percent, picture, select, show, spread, tone } from "./ui.js";
import { offer } from "./export.js";
import { Scatter } from "./scatter.js";

export async function mapView() {
  const scatter = new Scatter(/** @type {HTMLCanvasElement} */ (byId("map-canvas")), { hover: tell });
  const legend = byId("map-legend"), chosen = byId("map-brush");
  let where = "places", what = labels ? "label" : "function", pair = [0, 1];
  let x = /** @type {ArrayLike<number>} */ ([]), y = x, numbers = /** @type {ArrayLike<number> | null} */ (null);

  /** @param {number | null} i */
  function tell(i) {
    const holder = byId("map-hover");
    holder.replaceChildren(...(i === null ? [make("p", { className: "hint" }, "Point at a sample; drag to select several.")]
      : [picture(i, 40), make("span", { dir: "auto" }, describe(i) + (numbers ? `, ${show(numbers[i])}` : ""))]));
  }
  const sources = /** @type {Record<string, [string, string]>} */ ({
    label: ["label", ""], loss: ["network's loss", "network-loss"], error: ["leave-one-out error", "error"],
    uncertainty: ["uncertainty", "uncertainty"], function: ["selected eigenfunction", ""], target: ["target", ""],
  });
  async function load() {
    const t = choice.state;
    if (where === "places") {
      const places = await get(`places/${t}`);
      x = Float32Array.from({ length: meta.count }, (_, i) => places[2 * i]);
      y = Float32Array.from({ length: meta.count }, (_, i) => places[2 * i + 1]);
      scatter.axes = meta.embedding === "tsne" ? ["t-SNE of tangent features", ""] : ["kernel PCA, first component", "second component"];
    } else {
      const last = state().functions - 1;
      pair = pair.map((j) => Math.min(j, last));
      [x, y] = await Promise.all(pair.map((j) => get(`function/${t}/${j}`)));
      scatter.axes = [`eigenfunction ${pair[0] + 1}`, `eigenfunction ${pair[1] + 1}`];
    }
    scatter.lines = where !== "places";
    if (what === "label") numbers = null;
    else if (what === "function") numbers = await get(`function/${t}/${choice.j}`);
    else if (what === "target") numbers = await get("targets");
    else numbers = await maybe(`${sources[what][1]}/${t}`);
    if (!numbers) { scatter.put(x, y, colorOf); } else {
      const [low, high] = spread(numbers), given = numbers;
      const colors = Array.from({ length: 64 }, (_, i) => `rgb(${tone(i / 63).join(" ")})`);
      scatter.put(x, y, (i) => colors[Math.max(0, Math.min(63, Math.round((63 * (given[i] - low)) / (high - low))))]);
    }
    explain();
  }
  function explain() {
    if (numbers) {
      const [low, high] = spread(numbers);
      legend.replaceChildren(make("span", {}, `${sources[what][0]}: ${show(low)} `), make("span", { className: "ramp", ariaHidden: "true" }), make("span", {}, ` ${show(high)}`));
    } else legend.replaceChildren(...(labels ? meta.classes.slice(0, 40) : []).map((name, c) => {
      const dot = make("i", { className: "dot" });
      dot.style.background = classColor(c);
      const button = make("button", { type: "button", className: "key", title: "Select these samples" }, dot, make("span", { dir: "auto" }, name));
      button.addEventListener("click", () => choose({ brush: new Set(Array.from({ length: meta.count }, (_, i) => i).filter((i) => labels && labels[i] === c)) }));
      return button;
    }));
  }
  function brushed() {
    const brush = choice.brush;
    scatter.overlay();
    byId("map-clear").hidden = !brush;
    if (!brush) { chosen.replaceChildren(); return; }
    const counts = new Map();
    if (labels) for (const i of brush) counts.set(labels[i], (counts.get(labels[i]) ?? 0) + 1);
    const classes = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 6).map(([c, n]) => `${meta.classes[c]} ${n}`).join(", ");
    const few = make("div");
    gallery(few, [...brush].slice(0, 12).map((i) => [i, ""]), 40);
    chosen.replaceChildren(make("p", {}, make("b", {}, `${brush.size} selected`), ` (${percent(brush.size / meta.count)})${classes ? `: ${classes}` : ""}`), few);
  }
  const t = choice.state, colors = Object.entries(sources).filter(([name, [, array]]) => (name === "label" ? labels : name === "target" ? has("targets") : name === "function" || has(`${array}/${t}`)));
  const tools = byId("map-tools");
  const number = (/** @type {number} */ side) => {
    const box = make("input", { type: "number", min: "1", max: String(state().functions), value: String(pair[side] + 1), ariaLabel: side ? "vertical eigenfunction" : "horizontal eigenfunction" });
    box.addEventListener("change", () => { pair[side] = Math.max(1, Math.min(state().functions, Number(box.value) || 1)) - 1; box.value = String(pair[side] + 1); load(); });
    return box;
  };
  const axes = make("span", { className: "axes", hidden: true }, number(0), " × ", number(1));
  tools.append(
    select("Place by", [["places", meta.embedding === "tsne" ? "t-SNE" : "kernel PCA"], ["functions", "eigenfunctions"]], where, (value) => { where = value; axes.hidden = value === "places"; load(); }).element, axes,
    select("Color by", colors.map(([name, [text]]) => [name, text]), what, (value) => { what = value; load(); }).element);
  if (meta.kind === "image") {
    const box = make("input", { type: "checkbox" });
    box.addEventListener("change", () => { scatter.pictures = box.checked; scatter.draw(); });
    tools.append(make("label", {}, box, " pictures"));
  }
  byId("map-clear").addEventListener("click", () => choose({ brush: null }));
  // While a rectangle is drawn the gallery waits, so that no frame takes long.
  let later = 0;
  on(["brush"], () => { clearTimeout(later); later = window.setTimeout(brushed, scatter.drag ? 120 : 0); });
  on(["sample"], () => scatter.overlay());
  on(["state"], load);
  on(["j"], () => { if (what === "function") load(); });
  on(["theme"], () => scatter.draw());
  offer("map", {
    svg: async () => scatter.svg(),
    csv: async () => [["sample", "label", "x", "y", what === "label" ? "" : sources[what][0]], ...Array.from({ length: meta.count }, (_, i) => [i, labels ? meta.classes[labels[i]] : "", x[i], y[i], numbers ? numbers[i] : null])],
  });
  await load();
  tell(null);
  return { scatter, x: () => x, y: () => y, numbers: () => numbers };
}
