// The kernel over checkpoints: how far it moved, how it aligned with the labels, where its eigenfunctions went.
import { meta } from "./data.js";
import { choice, on, state } from "./bus.js";
import { byId, listFacts, percent, show } from "./ui.js";
import { chart, chartData, chartSvg, signal } from "./charts.js";
import { offer, stacked } from "./export.js";

const CURVES = /** @type {[keyof import("./data.js").Change, string][]} */ ([["distance", "distance from the start"], ["alignment", "alignment"], ["energy", "labels' energy, first 20"], ["overlap", "overlap of eigenspaces"]]);

export async function trainingView() {
  const first = byId("training-curves"), second = byId("training-overlaps");
  const names = meta.states.map(({ name }) => name);
  const rows = () => meta.states.flatMap(({ name, change }) => CURVES.flatMap(([key, text]) => {
    const value = change?.[key];
    return typeof value === "number" ? [{ checkpoint: name, measure: text, value }] : [];
  }));
  async function drawCurves() {
    const x = { field: "checkpoint", type: "ordinal", sort: names, axis: { title: "checkpoint", labelAngle: 0, labelLimit: 80 } };
    await chart(first, {
      description: "Measures of the kernel at every checkpoint", height: 200, params: [{ name: "here", value: state().name }],
      layer: [
        { data: { values: rows() }, mark: { type: "line", point: true, tooltip: true }, encoding: { x, y: { field: "value", type: "quantitative", axis: { title: null } },
          color: { field: "measure", type: "nominal", sort: CURVES.map(([, text]) => text), scale: { range: ["#d1495b", "#3b7dd8", "#3d9b5f", "#8b62c9"] }, legend: { title: null, columns: 2, labelLimit: 200 } } } },
        { data: { values: names.map((checkpoint) => ({ checkpoint })) }, transform: [{ filter: "datum.checkpoint === here" }], mark: { type: "rule", color: "#e8833a", strokeWidth: 1.5 }, encoding: { x } }],
    });
  }
  async function drawOverlaps() {
    const overlaps = state().change?.overlaps ?? [];
    const axis = { labelAngle: 0, values: [1, 5, 10, 15, 20], tickSize: 0 };
    await chart(second, {
      description: "Squared overlaps of the eigenfunctions at the first checkpoint with those at this one", height: 240,
      data: { values: overlaps.flatMap((row, i) => row.map((value, j) => ({ start: i + 1, now: j + 1, value }))) }, mark: { type: "rect", tooltip: true },
      encoding: { x: { field: "now", type: "ordinal", axis: { ...axis, title: `eigenfunction at ${state().name}` } }, y: { field: "start", type: "ordinal", axis: { ...axis, title: `eigenfunction at ${names[0]}` } },
        color: { field: "value", type: "quantitative", scale: { scheme: "viridis", domain: [0, 1] }, legend: { title: "squared overlap", gradientLength: 120 } } },
    });
  }
  async function tell() {
    const change = state().change;
    if (!change) return;
    listFacts(byId("training-facts"), [["Distance from the start", show(change.distance)], ["Overlap of eigenspaces", percent(change.overlap)],
      ...(/** @type {[string, string][]} */ (change.alignment === null ? [] : [["Alignment with the labels", percent(change.alignment)]]))]);
    const stays = change.overlaps.map((row) => row.reduce((a, b) => a + b, 0));
    const gone = stays.map((share, i) => ({ share, i })).filter(({ share }) => share < 0.5).map(({ i }) => i + 1);
    byId("training-turned").textContent = choice.state === 0 ? "This is the first checkpoint."
      : gone.length ? `Of the first ${stays.length} eigenfunctions at ${names[0]}, these have left the leading eigenspace (less than half of them is in it): ${gone.join(", ")}.`
        : `All of the first ${stays.length} eigenfunctions at ${names[0]} stay mostly in the leading eigenspace.`;
    await signal(first, "here", state().name);
  }
  on(["state"], () => { tell(); drawOverlaps(); });
  on(["theme"], () => { drawCurves(); drawOverlaps(); });
  offer("training", {
    svg: async () => stacked(await Promise.all([first, second].map(chartSvg))),
    csv: async () => [["checkpoint", "measure", "value"], ...rows().map((row) => [row.checkpoint, row.measure, row.value])],
  });
  await drawCurves();
  await drawOverlaps();
  await tell();
  return { rows, overlaps: () => chartData(second, "source_0") };
}
