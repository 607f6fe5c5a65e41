// The kernel as a heat map: cosines of all pairs of samples, ordered, with zoom.
import { block, describe, get, labels, log, meta } from "./data.js";
import { choice, choose, on } from "./bus.js";
import { byId, colorOf, css, fit, make, picture, select, show, spread, tone } from "./ui.js";
import { drawing, offer, raster, words } from "./export.js";

const EDGE = 14;  // pixels of the strips of classes
const MOST = 300;  // samples along a side below which the server gives every entry

/** The order of all samples. @returns {Promise<Uint32Array>} */
export async function ordering() {
  const all = Uint32Array.from({ length: meta.count }, (_, i) => i);
  if (choice.order === "given") return all;
  if (choice.order === "clusters") return Uint32Array.from(await get(`clusters/${choice.state}`));
  const values = await get(`function/${choice.state}/${choice.order === "class" ? 0 : choice.j}`);
  const by = choice.order === "class" ? labels : null;
  return all.sort((a, b) => (by ? by[a] - by[b] : 0) || values[b] - values[a] || a - b);
}

export async function heatView() {
  const canvas = /** @type {HTMLCanvasElement} */ (byId("heat-canvas"));
  const pair = byId("heat-pair");
  const chosen = await get("heat-samples");
  const n = chosen.length, place = new Map(Array.from(chosen, (sample, position) => [sample, position]));
  let order = /** @type {Uint32Array} */ (new Uint32Array()), values = /** @type {import("./data.js").Numbers} */ (new Float32Array());
  let diagonal = values, range = [0, 1], side = 400;
  let box = { x: 0, y: 0, size: 1 };  // the part in view, as shares of the order
  let cursor = /** @type {[number, number] | null} */ (null);
  let drag = /** @type {{x: number, y: number, x2: number, y2: number} | null} */ (null);
  const image = make("canvas"), scaled = { image: make("canvas"), stale: true, side: 0 };
  const near = { image: make("canvas"), key: "", r0: 0, c0: 0, count: 0, values: new Float32Array(), order: /** @type {Uint32Array} */ (new Uint32Array()) };

  /** @param {number} a @param {number} b positions among the samples of the heat map */
  const cosine = (a, b) => (a === b ? 1 : a < b ? values[a * n - (a * (a + 1)) / 2 + (b - a - 1)] : values[b * n - (b * (b + 1)) / 2 + (a - b - 1)]);

  async function load() {
    const [all, triangle, own] = await Promise.all([ordering(), get(`heat/${choice.state}`), get(`diagonal/${choice.state}`)]);
    near.order = all;
    order = all.filter((sample) => place.has(sample)).map((sample) => /** @type {number} */ (place.get(sample)));
    values = triangle;
    diagonal = own;
    const few = new Float32Array(Math.min(values.length, 20000));
    for (let i = 0; i < few.length; i++) few[i] = values[Math.floor((i * values.length) / few.length)];
    range = spread(few);
    paint(image, n, n, (r, c) => cosine(order[r], order[c]));
    near.key = "";
    scaled.stale = true;
    draw();
  }

  /** @param {HTMLCanvasElement} target @param {number} rows @param {number} columns @param {(r: number, c: number) => number} at */
  function paint(target, rows, columns, at) {
    target.width = columns;
    target.height = rows;
    const context = /** @type {CanvasRenderingContext2D} */ (target.getContext("2d"));
    const pixels = context.createImageData(columns, rows), colors = Array.from({ length: 256 }, (_, i) => tone(i / 255));
    for (let r = 0, p = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++, p += 4) {
        const level = Math.max(0, Math.min(255, Math.round((255 * (at(r, c) - range[0])) / (range[1] - range[0]))));
        const color = colors[level];
        pixels.data[p] = color[0]; pixels.data[p + 1] = color[1]; pixels.data[p + 2] = color[2]; pixels.data[p + 3] = 255;
      }
    }
    context.putImageData(pixels, 0, 0);
  }

  function draw() {
    side = Math.max(220, Math.min(560, (canvas.parentElement?.clientWidth ?? 400)) - EDGE);
    const context = fit(canvas, side + EDGE, side + EDGE);
    context.clearRect(0, 0, side + EDGE, side + EDGE);
    strip(context, box.x, true);
    strip(context, box.y, false);
    if (scaled.stale || scaled.side !== side) rescale();
    context.save();
    context.beginPath();
    context.rect(EDGE, EDGE, side, side);
    context.clip();
    context.drawImage(scaled.image, EDGE, EDGE, side, side);
    const scale = side / box.size;
    if (drag) { context.strokeStyle = css("--ink"); context.setLineDash([4, 3]); context.strokeRect(drag.x, drag.y, drag.x2 - drag.x, drag.y2 - drag.y); context.setLineDash([]); }
    if (cursor) {
      const cell = scale / near.order.length;
      context.strokeStyle = "#ffffff";
      context.lineWidth = 2;
      context.strokeRect(EDGE + cursor[1] * cell - box.x * scale - 1, EDGE + cursor[0] * cell - box.y * scale - 1, Math.max(4, cell) + 2, Math.max(4, cell) + 2);
    }
    context.restore();
    byId("heat-range").textContent = `Color: cosine from ${show(range[0])} (dark) to ${show(range[1])} (bright).`;
    exact().catch((error) => { log.errors.push(String(error)); });
  }

  /** The part in view at its size on the screen, which takes long and is kept while the reader points or selects. */
  function rescale() {
    const context = fit(scaled.image, side, side), scale = side / box.size;
    context.imageSmoothingEnabled = box.size * n > side;
    context.imageSmoothingQuality = "high";
    context.drawImage(image, -box.x * scale, -box.y * scale, scale, scale);
    if (near.key) {
      context.imageSmoothingEnabled = false;
      const cell = scale / meta.count;
      context.drawImage(near.image, (near.c0 / meta.count - box.x) * scale, (near.r0 / meta.count - box.y) * scale, near.count * cell, near.count * cell);
    }
    Object.assign(scaled, { stale: false, side });
  }

  /** Classes and chosen samples along an edge. @param {CanvasRenderingContext2D} context @param {number} first @param {boolean} across */
  function strip(context, first, across) {
    const count = near.order.length, ink = css("--ink");
    for (let p = 0; p < side; p++) {
      const sample = near.order[Math.min(count - 1, Math.floor((first + (box.size * (p + 0.5)) / side) * count))];
      if (sample === undefined) continue;
      if (labels) { context.fillStyle = colorOf(sample); context.fillRect(across ? EDGE + p : 6, across ? 6 : EDGE + p, across ? 1 : 6, across ? 6 : 1); }
      if (choice.brush?.has(sample) || sample === choice.sample) {
        context.fillStyle = ink;
        context.fillRect(across ? EDGE + p : 0, across ? 0 : EDGE + p, across ? 1.5 : 5, across ? 5 : 1.5);
      }
    }
  }

  /** With a server: every entry of what is in view, once it is small enough. */
  async function exact() {
    const count = Math.min(meta.count, Math.ceil(box.size * meta.count) + 1);
    if (!meta.remote || n === meta.count || count > MOST) return;
    const r0 = Math.max(0, Math.min(meta.count - count, Math.floor(box.y * meta.count)));
    const c0 = Math.max(0, Math.min(meta.count - count, Math.floor(box.x * meta.count)));
    const which = choice.order === "function" ? `function-${choice.j}` : choice.order;
    const key = `block/${choice.state}/${which}/${r0}/${c0}/${count}`;
    if (near.key === key) return;
    const found = await block(key);
    Object.assign(near, { key, r0, c0, count, values: found });
    paint(near.image, count, count, (r, c) => found[r * count + c]);
    scaled.stale = true;
    draw();
  }

  /** @param {number} r @param {number} c @returns {number} */
  function entry(r, c) {
    if (near.key && r >= near.r0 && c >= near.c0 && r < near.r0 + near.count && c < near.c0 + near.count) return near.values[(r - near.r0) * near.count + c - near.c0];
    const a = place.get(near.order[r]), b = place.get(near.order[c]);
    return a === undefined || b === undefined ? NaN : cosine(a, b);
  }

  function tell() {
    if (!cursor) { pair.replaceChildren(make("p", { className: "hint" }, "Point at the map, or use the arrow keys.")); return; }
    let [r, c] = cursor;
    if (n < meta.count && Number.isNaN(entry(r, c))) [r, c] = [r, c].map(nearestShown);
    const [a, b] = [near.order[r], near.order[c]], value = entry(r, c);
    const size = Math.sqrt(diagonal[a] * diagonal[b]);
    pair.replaceChildren(
      make("div", { className: "both" }, make("figure", {}, picture(a, 64), make("figcaption", { dir: "auto" }, describe(a))),
        make("figure", {}, picture(b, 64), make("figcaption", { dir: "auto" }, describe(b)))),
      make("p", {}, make("b", {}, `cosine ${show(value)}`), `, K = ${show(value * size)}`));
    pair.dataset.pair = `${a},${b}`;
    pair.dataset.value = String(value);
  }
  /** The position of the nearest sample that is on the map. @param {number} p */
  function nearestShown(p) {
    for (let step = 0; step < near.order.length; step++) {
      for (const q of [p - step, p + step]) if (q >= 0 && q < near.order.length && place.has(near.order[q])) return q;
    }
    return p;
  }

  /** @param {MouseEvent} event @returns {[number, number]} */
  const at = (event) => { const r = canvas.getBoundingClientRect(); return [event.clientX - r.left, event.clientY - r.top]; };
  /** @param {number} x @param {number} y @returns {[number, number] | null} row and column */
  function cell(x, y) {
    if (x < EDGE || y < EDGE || x >= EDGE + side || y >= EDGE + side) return null;
    const count = near.order.length;
    const along = (/** @type {number} */ p, /** @type {number} */ first) => Math.max(0, Math.min(count - 1, Math.floor((first + (box.size * (p - EDGE)) / side) * count)));
    return [along(y, box.y), along(x, box.x)];
  }
  /** @param {number} x @param {number} y @param {number} size */
  function zoom(x, y, size) {
    size = Math.max(Math.min(1, 4 / near.order.length), Math.min(1, size));
    box = { size, x: Math.max(0, Math.min(1 - size, x)), y: Math.max(0, Math.min(1 - size, y)) };
    near.key = "";
    scaled.stale = true;
    draw();
  }
  const closer = (/** @type {number} */ factor) => {
    const count = near.order.length, [r, c] = cursor ?? [(box.y + box.size / 2) * count, (box.x + box.size / 2) * count];
    const size = box.size * factor;
    zoom(c / count - size / 2, r / count - size / 2, size);
  };
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (drag) { drag.x2 = x; drag.y2 = y; } else { cursor = cell(x, y); tell(); }
    draw();
  });
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = at(event);
    if (event.pointerType !== "touch") { drag = { x, y, x2: x, y2: y }; canvas.setPointerCapture(event.pointerId); }
    cursor = cell(x, y);
    tell();
  });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = at(event), from = drag;
    drag = null;
    const size = from ? Math.max(Math.abs(x - from.x), Math.abs(y - from.y)) : 0;
    if (from && size > 8) {
      const scale = box.size / side;
      zoom(box.x + (Math.min(x, from.x) - EDGE) * scale, box.y + (Math.min(y, from.y) - EDGE) * scale, size * scale);
    } else if (cursor) choose({ sample: near.order[cursor[0]] });
    draw();
  });
  canvas.addEventListener("dblclick", () => zoom(0, 0, 1));
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)], last = near.order.length - 1;
    if (step) {
      const [r, c] = cursor ?? [0, 0], wide = event.shiftKey ? 10 : 1;
      cursor = [Math.max(0, Math.min(last, r + wide * step[0])), Math.max(0, Math.min(last, c + wide * step[1]))];
      tell();
      draw();
    } else if (event.key === "+" || event.key === "=") closer(0.5);
    else if (event.key === "-") closer(2);
    else if (event.key === "0") zoom(0, 0, 1);
    else if (event.key === "Enter" && cursor) choose({ sample: near.order[cursor[0]] });
    else return;
    event.preventDefault();
  });
  byId("heat-in").addEventListener("click", () => closer(0.5));
  byId("heat-out").addEventListener("click", () => closer(2));
  byId("heat-all").addEventListener("click", () => zoom(0, 0, 1));
  const orders = /** @type {[string, string][]} */ ([["class", "class"], ["function", "eigenfunction"], ["clusters", "clusters"], ["given", "as given"]]);
  const { element, box: list } = select("Order", orders.filter(([name]) => name !== "class" || labels), choice.order, (value) => choose({ order: value }));
  byId("heat-tools").prepend(element);
  on(["order"], () => { list.value = choice.order; });
  on(["state", "order"], load);
  on(["j"], () => { if (choice.order === "function") load(); });
  on(["brush", "sample", "theme"], draw);
  new ResizeObserver(draw).observe(/** @type {Element} */ (canvas.parentElement));
  offer("heat", {
    svg: async () => drawing(side + EDGE + 10, side + EDGE + 30, raster(canvas, 5, 5, side + EDGE, side + EDGE) + words(10, side + EDGE + 22, byId("heat-range").textContent)),
    csv: async () => [["sample", ...Array.from(order, (i) => chosen[i])], ...Array.from(order, (i) => [chosen[i], ...Array.from(order, (j) => Number(cosine(i, j).toPrecision(6)))])],
  });
  await load();
  tell();
  if (n < meta.count) {
    const more = meta.remote ? "zoom in for every entry" : "serve the kernel to see every entry";
    byId("heat-note").textContent = `The map shows ${n.toLocaleString("en")} of ${meta.count.toLocaleString("en")} samples, evenly from every class; ${more}.`;
  }
  return { order: () => Array.from(order, (i) => chosen[i]), cosine: (/** @type {number} */ a, /** @type {number} */ b) => cosine(place.get(a) ?? 0, place.get(b) ?? 0), box: () => box };
}
