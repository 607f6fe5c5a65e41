// One sample: what is near it, what is predicted without it, and which samples speak for and against that.
import { describe, facts, labelName, labels, maybe, meta, sampleName, targets } from "./data.js";
import { choice, choose, on } from "./bus.js";
import { byId, gallery, listFacts, make, percent, picture, show } from "./ui.js";
import { offer, sampleRows } from "./export.js";

/** @typedef {{near: [number, number][], inputs: [number, number][], speakers: [number, number][]}} Around */

/** The samples around one, from arrays or from the server. @param {number} i @returns {Promise<Around>} */
async function around(i) {
  const t = choice.state;
  if (meta.remote) return facts(`sample/${t}/${i}`);
  const pairs = async (/** @type {string} */ first, /** @type {string} */ second, /** @type {number} */ each) => {
    const [indices, values] = await Promise.all([maybe(first), maybe(second)]);
    if (!indices || !values) return [];
    return Array.from({ length: each }, (_, k) => /** @type {[number, number]} */ ([indices[i * each + k], values[i * each + k]]));
  };
  return {
    near: await pairs(`near/${t}`, `near-cosines/${t}`, meta.near), inputs: await pairs("inputs", "input-distances", meta.near),
    speakers: await pairs(`speakers/${t}`, `terms/${t}`, 2 * meta.speakers),
  };
}

export async function sampleView() {
  let found = /** @type {Around} */ ({ near: [], inputs: [], speakers: [] });
  const box = /** @type {HTMLInputElement} */ (byId("sample-search"));

  async function load() {
    const i = choice.sample, t = choice.state;
    const names = ["predicted", "prediction", "own-prediction", "uncertainty", "error", "network-predicted", "network-loss"];
    const [rest, ...numbers] = await Promise.all([around(i), ...names.map((name) => maybe(`${name}/${t}`))]);
    if (i !== choice.sample || t !== choice.state) return;
    found = /** @type {Around} */ (rest);
    const [predicted, prediction, own, uncertainty, error, decided, loss] = numbers;
    byId("sample-picture").replaceChildren(picture(i, 120));
    byId("sample-name").textContent = sampleName(i);
    const list = /** @type {[string, string | Node][]} */ ([]);
    const verdict = (/** @type {number} */ c) => make("span", { className: labels && labels[i] === c ? "good" : "bad", dir: "auto" }, meta.classes[c]);
    if (labels || targets) list.push(["Label", make("span", { dir: "auto" }, labelName(i))]);
    if (decided) list.push(["Network predicts", verdict(decided[i])]);
    if (loss) list.push(["Network's loss", show(loss[i])]);
    if (predicted && prediction) {
      list.push(["Kernel predicts without it", labels ? make("span", {}, verdict(predicted[i]), ` (${show(prediction[i])})`) : show(prediction[i])]);
      if (labels && own && predicted[i] !== labels[i]) list.push(["Its own class gets", show(own[i])]);
    }
    if (uncertainty) list.push(["Uncertainty left", percent(uncertainty[i])]);
    if (error) list.push(["Leave-one-out error", show(error[i])]);
    listFacts(byId("sample-facts"), list);
    gallery(byId("sample-near"), found.near.map(([k, value]) => [k, show(value)]));
    gallery(byId("sample-inputs"), found.inputs.map(([k, value]) => [k, show(value)]));
    byId("sample-inputs-part").hidden = !found.inputs.length;
    const half = found.speakers.length / 2;
    const signed = (/** @type {number} */ v) => (v > 0 ? "+" : "") + show(v);
    gallery(byId("sample-for"), found.speakers.slice(0, half).map(([k, value]) => [k, signed(value), value > 0 ? "good" : "bad"]));
    gallery(byId("sample-against"), found.speakers.slice(half).map(([k, value]) => [k, signed(value), value > 0 ? "good" : "bad"]));
    byId("sample-speakers-part").hidden = !found.speakers.length;
    const which = labels && predicted ? ` for ${meta.classes[predicted[i]]}` : "";
    byId("sample-speakers-title").textContent = `Samples that speak${which}, and against it`;
    byId("sample-status").textContent = `Sample ${describe(i)} is shown.`;
    byId("view-sample").dataset.sample = String(i);
  }
  function search() {
    const text = box.value.trim().toLowerCase();
    if (!text) return;
    const number = /^\d+$/.test(text) ? Number(text) : NaN;
    const hit = number < meta.count ? number : Array.from({ length: meta.count }, (_, i) => i)
      .find((i) => sampleName(i).toLowerCase().includes(text) || (meta.texts[i] ?? "").toLowerCase().includes(text));
    if (hit === undefined) byId("sample-status").textContent = "No such sample.";
    else choose({ sample: hit });
  }
  box.addEventListener("change", search);
  byId("sample-back").addEventListener("click", () => choose({ sample: (choice.sample + meta.count - 1) % meta.count }));
  byId("sample-forth").addEventListener("click", () => choose({ sample: (choice.sample + 1) % meta.count }));
  on(["sample", "state"], load);
  const noted = (/** @type {[number, number][]} */ list) => list.map(([k, v]) => /** @type {[number, string]} */ ([k, show(v)]));
  offer("sample", {
    svg: async () => sampleRows([{ title: describe(choice.sample), samples: [[choice.sample, ""]] }, { title: "Nearest in tangent space", samples: noted(found.near) },
      { title: "Nearest inputs", samples: noted(found.inputs) }, { title: "For, and against", samples: noted(found.speakers) }]),
    csv: async () => [["sample", "relation", "other", "label", "value"], ...(/** @type {["near" | "inputs" | "speakers", string][]} */ ([["near", "cosine"], ["inputs", "distance"], ["speakers", "term"]]))
      .flatMap(([key, name]) => found[key].map(([k, v]) => [choice.sample, name, k, labelName(k), v]))],
  });
  await load();
  return { found: () => found };
}
