// The network beside its linearization: margins of every sample, and where the predictions differ.
import { describe, labelName, labels, maybe, meta } from "./data.js";
import { choice, on, state } from "./bus.js";
import { byId, gallery, listFacts, make, percent, picture, show } from "./ui.js";
import { offer } from "./export.js";
import { Scatter } from "./scatter.js";

export async function linearView() {
  const scatter = new Scatter(/** @type {HTMLCanvasElement} */ (byId("linear-canvas")), { hover: tell, height: 320 });
  scatter.lines = true;
  let one = /** @type {ArrayLike<number>} */ ([]), two = one, differ = one, apart = /** @type {number[]} */ ([]);

  /** @param {number | null} i */
  function tell(i) {
    byId("linear-hover").replaceChildren(...(i === null ? [] : [picture(i, 40), make("span", { dir: "auto" }, `${describe(i)}: network ${show(one[i])}, linearization ${show(two[i])}`)]));
  }
  async function load() {
    const t = choice.state, about = state().linear;
    byId("linear-part").hidden = !about;
    if (!about) return;
    const found = await Promise.all([`network-margin/${t}`, `linear-margin/${t}`, `disagree/${t}`].map(maybe));
    [one, two, differ] = found.map((part) => part ?? []);
    const kind = labels ? "margin" : "output";
    scatter.axes = [`network's ${kind}`, `linearization's ${kind}`];
    scatter.put(one, two, (i) => (differ[i] ? "#d1495b" : "#8a93a3"));
    apart = Array.from({ length: meta.count }, (_, i) => i).filter((i) => differ[i]).sort((a, b) => Math.abs(one[b] - two[b]) - Math.abs(one[a] - two[a]));
    byId("linear-kind").textContent = about.kind === "moved"
      ? `The linearization is that at ${meta.states[0].name}, moved to the weights of ${state().name}.`
      : "The linearization is fitted to the labels: kernel regression, every sample predicted without itself.";
    const [both, net, lin, none] = about.right ?? [];
    listFacts(byId("linear-facts"), about.right
      ? [["Same prediction", percent(about.agreement)], ["Both right", String(both)], ["Only the network", String(net)], ["Only the linearization", String(lin)], ["Both wrong", String(none)]]
      : [["Correlation", show(about.agreement)]]);
    gallery(byId("linear-differ"), apart.slice(0, 12).map((i) => [i, `${show(one[i], 2)} / ${show(two[i], 2)}`]));
    byId("linear-none").hidden = apart.length > 0;
  }
  on(["state"], load);
  on(["sample", "brush"], () => scatter.overlay());
  on(["theme"], () => scatter.draw());
  offer("linear", {
    svg: async () => scatter.svg(),
    csv: async () => [["sample", "label", "network", "linearization", "differ"], ...Array.from({ length: meta.count }, (_, i) => [i, labelName(i), one[i], two[i], differ[i]])],
  });
  await load();
  return { apart: () => apart, network: () => one, linear: () => two };
}
