// Pictures and numbers to take away: SVG, PNG, CSV.
import { drawSample, labelName, meta, sampleName } from "./data.js";
import { css, fit, make } from "./ui.js";

/** @typedef {{svg: () => Promise<string>, csv: () => Promise<(string | number | null)[][]>}} Takeaway */
const takeaways = /** @type {Map<string, Takeaway>} */ (new Map());

/** @param {string} view @param {Takeaway} made */
export function offer(view, made) { takeaways.set(view, made); }

/** @param {unknown} text */
export const xml = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "");

/** @param {number} width @param {number} height @param {string} content */
export const drawing = (width, height, content) =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="Helvetica, Arial, sans-serif">` +
  `<rect width="100%" height="100%" fill="${css("--raised")}"/>${content}</svg>`;
/** @param {number} x @param {number} y @param {unknown} text @param {string} [more] */
export const words = (x, y, text, more = "") => `<text x="${x}" y="${y}" font-size="11" fill="${css("--ink")}" ${more}>${xml(text)}</text>`;
/** @param {HTMLCanvasElement} canvas @param {number} x @param {number} y @param {number} w @param {number} h */
export const raster = (canvas, x, y, w, h) =>
  `<image x="${x}" y="${y}" width="${w}" height="${h}" href="${canvas.toDataURL("image/png")}" image-rendering="pixelated"/>`;

/** Several drawings below each other. @param {string[]} parts */
export function stacked(parts) {
  let top = 0, width = 0, inside = "";
  for (const part of parts) {
    const size = /<svg[^>]*?\swidth="([\d.]+)"[^>]*?\sheight="([\d.]+)"/.exec(part);
    inside += part.replace("<svg", `<svg x="0" y="${top}"`);
    width = Math.max(width, Number(size?.[1] ?? 400));
    top += Number(size?.[2] ?? 300) + 12;
  }
  return drawing(width, top, inside);
}

/** Rows of samples with captions. @param {{title: string, samples: [number, string, string?][]}[]} rows @param {number} [side] */
export function sampleRows(rows, side = 56) {
  const text = meta.kind !== "image", step = text ? 0 : side + 14;
  let top = 8, inside = "", width = 360;
  for (const { title, samples } of rows) {
    inside += words(10, top + 14, title, 'font-weight="600"');
    top += 22;
    samples.forEach(([i, note], place) => {
      if (text) {
        inside += words(10, top + 12, `${note}  ${labelName(i)}  ${meta.texts[i] || sampleName(i)}`);
        top += 18;
        return;
      }
      const canvas = make("canvas");
      drawSample(fit(canvas, side, side), i, 0, 0, side, () => {});
      const x = 10 + place * step;
      inside += raster(canvas, x, top, side, side) + words(x, top + side + 13, note) + words(x, top + side + 26, labelName(i));
      width = Math.max(width, x + step);
    });
    top += text ? 8 : side + 38;
  }
  return drawing(text ? 900 : width, top, inside);
}

/** @param {(string | number | null)[][]} rows */
export function table(rows) {
  // A spreadsheet would run a text that begins with one of these signs.
  const cell = (/** @type {string | number | null} */ value) => {
    if (typeof value !== "string") return value === null ? "" : String(value);
    const text = /^[=+@\t\r-]/.test(value) ? `'${value}` : value;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",") + "\r\n").join("");
}

/** @param {string} svg @returns {Promise<Blob>} */
async function rasterized(svg) {
  const image = new Image();
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    image.src = address;
    await image.decode();
    const canvas = make("canvas", { width: 2 * image.naturalWidth, height: 2 * image.naturalHeight });
    /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("no picture"))), "image/png"));
  } finally { URL.revokeObjectURL(address); }
}

/** @param {string} view @param {string} kind @returns {Promise<Blob>} */
export async function takeaway(view, kind) {
  const made = takeaways.get(view);
  if (!made) throw new Error(`nothing to save of ${view}`);
  if (kind === "csv") return new Blob(["\ufeff", table(await made.csv())], { type: "text/csv" });
  const svg = await made.svg();
  return kind === "svg" ? new Blob([svg], { type: "image/svg+xml" }) : rasterized(svg);
}

document.addEventListener("click", async (event) => {
  const button = /** @type {HTMLElement} */ (event.target).closest("[data-save]");
  if (!(button instanceof HTMLElement)) return;
  const { view = "", save = "" } = button.dataset;
  const address = URL.createObjectURL(await takeaway(view, save));
  make("a", { href: address, download: `${view}.${save}` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
});
