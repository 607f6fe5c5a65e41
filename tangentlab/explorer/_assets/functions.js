// Eigenfunctions: the samples at both ends, and what the sign says about the labels.
import { get, labels, maybe, meta } from "./data.js";
import { choice, choose, on, state } from "./bus.js";
import { byId, classColor, css, fit, gallery, listFacts, make, percent, show } from "./ui.js";
import { offer, sampleRows } from "./export.js";

const SHOWN = 12;

export async function functionsView() {
  const slider = /** @type {HTMLInputElement} */ (byId("functions-j"));
  let values = await get(`function/${choice.state}/${choice.j}`), largest = /** @type {number[]} */ ([]), smallest = largest;

  async function load() {
    const count = state().functions;
    slider.max = String(count);
    if (choice.j >= count) { choose({ j: count - 1 }); return; }
    slider.value = String(choice.j + 1);
    byId("functions-j-value").textContent = String(choice.j + 1);
    values = await get(`function/${choice.state}/${choice.j}`);
    const order = Array.from(values, (_, i) => i).sort((a, b) => values[b] - values[a]);
    largest = order.slice(0, SHOWN);
    smallest = order.slice(-SHOWN).reverse();
    const numbered = (/** @type {number[]} */ list) => list.map((i) => /** @type {[number, string]} */ ([i, show(values[i])]));
    gallery(byId("functions-largest"), numbered(largest));
    gallery(byId("functions-smallest"), numbered(smallest));
    await tell();
    strips();
  }
  async function tell() {
    const [eigenvalues, energy] = await Promise.all([get(`eigenvalues/${choice.state}`), maybe(`energy/${choice.state}`)]);
    const { accuracy, chance, sides } = state(), j = choice.j;
    const facts = /** @type {[string, string | Node][]} */ ([["Eigenvalue", show(eigenvalues[j], 4)]]);
    if (energy) facts.push(["Labels' energy on it", percent(energy[j])]);
    const oneSided = values.every((v) => v >= 0) || values.every((v) => v <= 0);
    if (oneSided) facts.push(["Sign", "the same for all samples, so it separates no classes"]);
    else if (accuracy && chance) facts.push(["Accuracy of its sign", make("span", {}, percent(accuracy[j]), make("small", {}, `larger group ${percent(chance[j])}`))]);
    if (!oneSided && sides && meta.classes.length) {
      const side = (/** @type {number} */ sign) => make("span", { className: "classes" }, ...meta.classes.flatMap((name, c) => {
        if (sides[j][c] !== sign) return [];
        const chip = make("span", { className: "chip", dir: "auto" }, name);
        chip.style.borderColor = classColor(c);
        return [chip];
      }));
      facts.push(["Classes where it is positive", side(1)], ["Classes where it is negative", side(-1)]);
    }
    listFacts(byId("functions-facts"), facts);
  }
  /** Every sample's value, a line of dots per class. */
  function strips() {
    const canvas = /** @type {HTMLCanvasElement} */ (byId("functions-strips"));
    const rows = labels ? meta.classes.length : 1, line = rows > 20 ? 6 : 15, left = labels ? 74 : 8;
    const width = Math.max(240, canvas.parentElement?.clientWidth ?? 400), height = rows * line + 22;
    const context = fit(canvas, width, height);
    const top = Math.max(...values.map(Math.abs)) || 1, x = (/** @type {number} */ v) => left + ((v / top + 1) / 2) * (width - left - 8);
    context.font = "11px sans-serif";
    context.fillStyle = css("--soft");
    if (labels && line > 8) meta.classes.forEach((name, c) => context.fillText(name.slice(0, 11), 0, c * line + 12));
    context.fillRect(x(0), 0, 1, rows * line);
    context.fillText("0", x(0) - 3, height - 6);
    context.fillText(show(-top), left, height - 6);
    context.textAlign = "right";
    context.fillText(show(top), width - 6, height - 6);
    context.globalAlpha = 0.45;
    values.forEach((v, i) => {
      const c = labels ? labels[i] : 0;
      context.fillStyle = labels ? classColor(c) : "#3b7dd8";
      context.fillRect(x(v) - 0.75, c * line + 2, 1.5, line - 4);
    });
  }
  slider.addEventListener("input", () => choose({ j: Number(slider.value) - 1 }));
  byId("functions-back").addEventListener("click", () => choose({ j: Math.max(0, choice.j - 1) }));
  byId("functions-forth").addEventListener("click", () => choose({ j: Math.min(state().functions - 1, choice.j + 1) }));
  on(["state", "j"], load);
  on(["theme"], strips);
  new ResizeObserver(strips).observe(/** @type {Element} */ (byId("functions-strips").parentElement));
  const noted = (/** @type {number[]} */ list) => list.map((i) => /** @type {[number, string]} */ ([i, show(values[i])]));
  offer("functions", {
    svg: async () => sampleRows([{ title: `Largest values of eigenfunction ${choice.j + 1}`, samples: noted(largest) }, { title: "Smallest values", samples: noted(smallest) }]),
    csv: async () => [["sample", "label", `phi_${choice.j + 1}`], ...Array.from(values, (v, i) => [i, labels ? meta.classes[labels[i]] : "", v])],
  });
  await load();
  return { values: () => values, largest: () => largest, smallest: () => smallest };
}
