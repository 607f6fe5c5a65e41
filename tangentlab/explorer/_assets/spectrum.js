// Eigenvalues on logarithmic axes, and how much of the labels the first K eigenfunctions hold.
import { get, maybe, meta } from "./data.js";
import { choice, choose, on, state } from "./bus.js";
import { byId, listFacts, percent, show } from "./ui.js";
import { chart, chartSvg, signal } from "./charts.js";
import { offer, stacked } from "./export.js";

export async function spectrumView() {
  const slider = /** @type {HTMLInputElement} */ (byId("spectrum-k"));
  const first = byId("spectrum-values"), second = byId("spectrum-energy");
  let values = await get(`eigenvalues/${choice.state}`), energy = await maybe(`energy/${choice.state}`);
  let cumulative = new Float64Array(), traces = new Float64Array();

  async function load() {
    values = await get(`eigenvalues/${choice.state}`);
    energy = await maybe(`energy/${choice.state}`);
    slider.max = String(values.length);
    traces = running(values);
    cumulative = running(energy ?? []);
    if (choice.K > values.length) choose({ K: values.length });
    await draw();
    tell();
  }
  /** @param {ArrayLike<number>} numbers */
  function running(numbers) {
    const sums = new Float64Array(numbers.length);
    for (let i = 0, sum = 0; i < numbers.length; i++) { sum += numbers[i]; sums[i] = sum; }
    return sums;
  }
  const points = () => {
    const kept = [];  // evenly on the logarithmic axis: more cannot be told apart
    for (let j = 1, step = 0; j <= values.length; j = Math.max(j + 1, Math.round(1.015 ** ++step))) kept.push(j);
    return kept;
  };
  async function draw() {
    const params = [{ name: "K", value: choice.K }];
    const rule = { mark: { type: "rule", color: "#e8833a", strokeWidth: 1.5 }, data: { values: [{}] }, encoding: { x: { datum: { expr: "K" }, type: "quantitative" } } };
    const x = { field: "j", type: "quantitative", scale: { type: "log", domain: [1, Math.max(2, values.length)], nice: false }, axis: { title: "number of the eigenfunction", tickCount: 5, format: "~s" } };
    const floor = values[0] * 1e-12;
    await chart(first, {
      description: "Eigenvalues against their number, both on logarithmic axes", height: 170, params,
      layer: [
        { data: { values: points().map((j) => ({ j, value: Number(values[j - 1].toPrecision(5)) })).filter((row) => row.value > floor) },
          mark: { type: "line", point: values.length < 80, tooltip: true },
          encoding: { x, y: { field: "value", type: "quantitative", scale: { type: "log" }, axis: { title: "eigenvalue", tickCount: 5, format: "~e" } } } },
        rule],
    });
    second.hidden = !energy;
    if (energy) {
      await chart(second, {
        description: "Share of the labels' energy on the first K eigenfunctions", height: 130, params,
        layer: [
          { data: { values: points().map((j) => ({ j, share: Number(Math.min(1, cumulative[j - 1]).toPrecision(5)) })) },
            mark: { type: "line", color: "#3d9b5f", tooltip: true },
            encoding: { x: { ...x, axis: { ...x.axis, title: "K" } }, y: { field: "share", type: "quantitative", scale: { domain: [0, 1] }, axis: { title: "labels' energy", tickCount: 3, format: "%" } } } },
          rule],
      });
    }
  }
  function tell() {
    const K = choice.K, { trace, rank, complete, pairs } = state();
    slider.value = String(K);
    byId("spectrum-k-value").textContent = String(K);
    listFacts(byId("spectrum-facts"), [
      ["Eigenvalue K", show(values[K - 1], 4)],
      ["Share of the trace in the first K", percent(traces[K - 1] / trace)],
      ...(/** @type {[string, string][]} */ (energy ? [["Labels' energy on the first K", percent(cumulative[K - 1])]] : [])),
      ["Effective rank", rank === null ? `not known: ${pairs} of ${meta.count} eigenpairs` : show(rank, 4)],
      ["Largest / smallest eigenvalue", complete ? show(values[0] / values[values.length - 1]) : "–"],
    ]);
    return Promise.all([signal(first, "K", K), energy ? signal(second, "K", K) : null]);
  }
  slider.addEventListener("input", () => choose({ K: Number(slider.value) }));
  on(["K"], tell);
  on(["state", "theme"], load);
  offer("spectrum", {
    svg: async () => stacked(await Promise.all([first, ...(energy ? [second] : [])].map(chartSvg))),
    csv: async () => [["j", "eigenvalue", "label_energy", "cumulative_label_energy"], ...Array.from(values, (value, j) => [j + 1, value, energy ? energy[j] : null, energy ? cumulative[j] : null])],
  });
  await load();
  return { values: () => values, cumulative: () => cumulative };
}
