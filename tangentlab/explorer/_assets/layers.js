// Each layer's share of the kernel, and its own spectrum.
import { on, state } from "./bus.js";
import { byId } from "./ui.js";
import { chart, chartSvg } from "./charts.js";
import { offer, stacked } from "./export.js";

export async function layersView() {
  const first = byId("layers-shares"), second = byId("layers-spectra");
  const order = () => state().layers.map((layer) => layer.name);
  async function draw() {
    const layers = state().layers;
    const color = { field: "layer", type: "nominal", sort: order(), scale: { scheme: "viridis" }, legend: null };
    await chart(first, {
      description: "Share of the kernel's trace by layer", height: Math.max(40, 18 * layers.length),
      data: { values: layers.map(({ name, share }) => ({ layer: name, share })) }, mark: { type: "bar", tooltip: true, cornerRadiusEnd: 2 },
      encoding: { y: { field: "layer", type: "nominal", sort: order(), axis: { title: null, labelLimit: 150 } }, x: { field: "share", type: "quantitative", axis: { title: "share of the kernel", format: "%", tickCount: 4 } }, color },
    });
    const rows = layers.flatMap(({ name, values }) => values.filter((v) => v > 1e-9 * values[0]).map((value, j) => ({ layer: name, j: j + 1, value })));
    second.hidden = !rows.length;
    if (rows.length) await chart(second, {
      description: "Eigenvalues of each layer's part of the kernel", height: 180, data: { values: rows }, mark: { type: "line", strokeWidth: 2, tooltip: true },
      encoding: { x: { field: "j", type: "quantitative", scale: { type: "log", nice: false }, axis: { title: "number of the eigenvalue", tickCount: 5, format: "~s" } },
        y: { field: "value", type: "quantitative", scale: { type: "log" }, axis: { title: "eigenvalue", tickCount: 5, format: "~e" } },
        color: { ...color, legend: { title: null, symbolLimit: 12, columns: 2, labelLimit: 140 } } },
    });
  }
  on(["state", "theme"], draw);
  offer("layers", {
    svg: async () => stacked(await Promise.all([first, ...(second.hidden ? [] : [second])].map(chartSvg))),
    csv: async () => [["layer", "share", "j", "eigenvalue"], ...state().layers.flatMap(({ name, share, values }) => values.map((v, j) => [name, share, j + 1, v]))],
  });
  await draw();
  return { layers: () => state().layers };
}
