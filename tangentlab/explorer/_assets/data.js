// The page's numbers: typed arrays by name, in the page itself or from the server, and the samples' pictures.

/** @typedef {{t: string, s: number, o: number, d: number[], b?: string}} Packed */
/** @typedef {{alignments: number[], width: number, height: number, image: string}} Nads */
/** @typedef {{distance: number, overlap: number, alignment: number | null, energy: number | null, overlaps: number[][]}} Change */
/**
 * @typedef {{name: string, trace: number, rank: number | null, complete: boolean, pairs: number, functions: number,
 *   accuracy: number[] | null, chance: number[] | null, sides: number[][] | null,
 *   fit: {ridge: number, exact: boolean, accuracy: number | null, error: number} | null,
 *   network: {accuracy: number | null, loss: number} | null,
 *   layers: {name: string, share: number, values: number[]}[], nads: Nads | null,
 *   linear: {kind: string, right: number[] | null, agreement: number} | null, change: Change | null}} State
 */
/**
 * @typedef {{title: string, count: number, kind: string, names: string[], texts: string[], sheet: number,
 *   classes: string[], labeled: boolean, embedding: string, readout: string, near: number, speakers: number,
 *   prior: number, states: State[], arrays: Record<string, Packed>, remote: boolean, themes: Record<string, object>}} Meta
 */
/** @typedef {Float32Array | Uint8Array | Uint16Array | Uint32Array} Numbers */

const errors = /** @type {string[]} */ ([]);
const source = /** @type {HTMLElement} */ (document.getElementById("data"));
export const meta = /** @type {Meta} */ (JSON.parse(source.textContent ?? ""));
source.textContent = "";
const TYPES = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, i16: Int16Array, f32: Float32Array };
const kept = /** @type {Map<string, Promise<Numbers>>} */ (new Map());
const requested = /** @type {string[]} */ ([]);

/** @param {string} name */
export const has = (name) => name in meta.arrays;

/** @param {string} text @returns {ArrayBuffer} */
function bytesOf(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes.buffer;
}

/** @param {string} path @returns {Promise<ArrayBuffer>} */
async function ask(path) {
  requested.push(path);
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.arrayBuffer();
}

/** @param {string} name @returns {Promise<ArrayBuffer>} */
async function load(name) {
  const packed = meta.arrays[name];
  if (packed.b === undefined) return ask(`array/${name}`);
  const bytes = bytesOf(packed.b);
  packed.b = "";
  return bytes;
}

/**
 * An array: whole numbers as they are, others as numbers with their scale.
 * @param {string} name @returns {Promise<Numbers>}
 */
export function get(name) {
  let found = kept.get(name);
  if (!found) {
    found = load(name).then((bytes) => {
      const { t, s, o } = meta.arrays[name];
      const numbers = new TYPES[/** @type {keyof typeof TYPES} */ (t)](bytes);
      if (s === 1 && o === 0 && t !== "i16") return /** @type {Numbers} */ (numbers);
      return Float32Array.from(/** @type {ArrayLike<number>} */ (numbers), (x) => o + s * x);
    });
    kept.set(name, found);
  }
  return found;
}

/** @param {string} name @returns {Promise<Numbers | null>} */
export const maybe = (name) => (has(name) ? get(name) : Promise.resolve(null));

/** A block of cosines from the server: entries of any samples. @param {string} path */
export const block = async (path) => new Float32Array(await ask(path));

/** @param {string} path @returns {Promise<any>} */
export const facts = async (path) => JSON.parse(new TextDecoder().decode(await ask(path)));

// Samples.
export let labels = /** @type {Numbers | null} */ (null);
export let targets = /** @type {Numbers | null} */ (null);
export async function loadLabels() {
  labels = await maybe("labels");
  targets = await maybe("targets");
}
/** @param {number} i */
export const sampleName = (i) => meta.names[i] ?? `no. ${i}`;
/** @param {number} i */
export const labelName = (i) => (labels ? meta.classes[labels[i]] : targets ? String(Number(targets[i].toPrecision(4))) : "");
/** @param {number} i */
export const describe = (i) => [sampleName(i), labelName(i)].filter(Boolean).join(", ");

const sheets = /** @type {Map<number, ImageBitmap>} */ (new Map());
const loading = /** @type {Map<number, Promise<void>>} */ (new Map());
const waiting = /** @type {Set<() => void>} */ (new Set());

/** The sheet with a sample's picture, loaded if need be. @param {number} i */
function sheetOf(i) {
  const number = Math.floor(i / meta.sheet);
  const found = sheets.get(number);
  if (found || meta.kind !== "image") return found ?? null;
  if (!loading.has(number)) {
    const name = `sheet/${number}`;
    loading.set(number, load(name)
      .then((bytes) => createImageBitmap(new Blob([bytes], { type: meta.arrays[name].t })))
      .then((bitmap) => { sheets.set(number, bitmap); const calls = [...waiting]; waiting.clear(); calls.forEach((call) => call()); })
      .catch((error) => { errors.push(String(error)); }));
  }
  return null;
}

/**
 * Draw a sample's picture into a box, or return false and call again when its sheet is there.
 * @param {CanvasRenderingContext2D} context @param {number} i
 * @param {number} x @param {number} y @param {number} side @param {() => void} again
 */
export function drawSample(context, i, x, y, side, again) {
  const sheet = sheetOf(i);
  if (!sheet) { if (meta.kind === "image") waiting.add(again); return false; }
  const [width, height, columns] = meta.arrays[`sheet/${Math.floor(i / meta.sheet)}`].d;
  const place = i % meta.sheet;
  const scale = side / Math.max(width, height), w = width * scale, h = height * scale;
  context.imageSmoothingEnabled = scale < 1;
  context.drawImage(sheet, (place % columns) * width, Math.floor(place / columns) * height, width, height,
    x + (side - w) / 2, y + (side - h) / 2, w, h);
  return true;
}
export const picturesLoaded = () => [...loading.values()].length === sheets.size;
export const log = { errors, requested };
