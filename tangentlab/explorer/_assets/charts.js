// Charts by Vega-Lite, in the page's colors.
import { log, meta } from "./data.js";
import { choice } from "./bus.js";

/** @type {(element: HTMLElement, spec: object, options: object) => Promise<any>} */
const embed = /** @type {any} */ (window).vegaEmbed;
const drawn = /** @type {Map<HTMLElement, {finalize: () => void, view: any}>} */ (new Map());

/** Draw a chart as wide as its element. @param {HTMLElement} element @param {object} spec */
export async function chart(element, spec) {
  element.dataset.state = "drawing";
  try {
    const result = await embed(element, { $schema: "https://vega.github.io/schema/vega-lite/v6.json", width: "container",
      autosize: { type: "fit-x", contains: "padding" }, ...spec }, {
      mode: "vega-lite", renderer: "svg", config: meta.themes[choice.theme], ast: true, actions: false,
      defaultStyle: false, tooltip: { theme: choice.theme, disableDefaultStyle: true },
    });
    drawn.get(element)?.finalize();
    drawn.set(element, result);
    element.dataset.state = "drawn";
  } catch (error) {
    log.errors.push(`${element.id}: ${error}`);
    element.dataset.state = "failed";
    element.textContent = "This chart could not be drawn.";
  }
}
/** @param {HTMLElement} element @param {string} name @param {unknown} value */
export async function signal(element, name, value) {
  const found = drawn.get(element);
  if (found) await found.view.signal(name, value).runAsync();
}
/** @param {HTMLElement} element @returns {Promise<string>} */
export async function chartSvg(element) { return drawn.get(element)?.view.toSVG() ?? ""; }
/** @param {HTMLElement} element @param {string} name @returns {any[]} */
export const chartData = (element, name) => drawn.get(element)?.view.data(name) ?? [];
