// Light and dark, checkpoints, and the views, each drawn when it comes near.
import { get, loadLabels, log, meta, picturesLoaded } from "./data.js";
import { choice, choose, on, state } from "./bus.js";
import { byId, make } from "./ui.js";
import { takeaway } from "./export.js";
import { heatView } from "./heat.js";
import { spectrumView } from "./spectrum.js";
import { functionsView } from "./functions.js";
import { mapView } from "./map.js";
import { sampleView } from "./sample.js";
import { layersView } from "./layers.js";
import { trainingView } from "./training.js";
import { nadsView } from "./nads.js";
import { linearView } from "./linear.js";

const VIEWS = { heat: heatView, map: mapView, sample: sampleView, spectrum: spectrumView, functions: functionsView, layers: layersView, training: trainingView, nads: nadsView, linear: linearView };
const views = /** @type {Record<string, any>} */ ({});

const dark = matchMedia("(prefers-color-scheme: dark)");
let wanted = /** @type {string | null} */ (null);
try { wanted = localStorage.getItem("tangentlab-theme"); } catch { /* a page from a file, or in a frame, may have no storage */ }
function applyTheme() {
  const theme = wanted ?? (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
  choose({ theme });
}
byId("theme").addEventListener("click", () => {
  wanted = choice.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("tangentlab-theme", wanted); } catch { /* as above */ }
  applyTheme();
});
dark.addEventListener("change", applyTheme);
applyTheme();

const slider = /** @type {HTMLInputElement | null} */ (document.getElementById("checkpoint"));
if (slider) {
  slider.value = String(choice.state);
  slider.addEventListener("input", () => choose({ state: Number(slider.value) }));
  const tell = () => {
    slider.value = String(choice.state);
    byId("checkpoint-name").textContent = state().name;
    slider.setAttribute("aria-valuetext", state().name);
  };
  on(["state"], tell);
  tell();
}

async function begin() {
  await loadLabels();
  const cards = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-view]")].filter((card) => card instanceof HTMLElement && card.id.startsWith("view-")));
  for (const card of cards) {
    const name = card.dataset.view ?? "";
    card.dataset.state = "drawing";
    try {
      views[name] = await VIEWS[/** @type {keyof typeof VIEWS} */ (name)]();
      card.dataset.state = "drawn";
    } catch (error) {
      log.errors.push(`${name}: ${error}`);
      card.dataset.state = "failed";
      card.append(make("p", { className: "bad" }, "This view could not be drawn."));
    }
    await new Promise((done) => { setTimeout(done); });  // the reader's hand comes first
  }
  document.documentElement.dataset.ready = "yes";
}
begin();
Object.assign(window, { tangentlab: { meta, choice, choose, get, views, takeaway, errors: log.errors, requested: log.requested, picturesLoaded } });
