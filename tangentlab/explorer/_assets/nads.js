// Neural anisotropy directions: the inputs' directions that the network is most sensitive to learn along.
import { meta } from "./data.js";
import { byId, fit, make, show } from "./ui.js";
import { drawing, offer, raster, words } from "./export.js";

export async function nadsView() {
  const holder = byId("nads-rows");
  const shown = meta.states.filter(({ nads }) => nads);
  const drawings = /** @type {{title: string, images: HTMLCanvasElement[], alignments: number[]}[]} */ ([]);
  for (const { name, nads } of shown) {
    if (!nads) continue;
    const image = new Image();
    image.src = `data:image/png;base64,${nads.image}`;
    await image.decode();
    const side = 84, scale = side / Math.max(nads.width, nads.height);
    const images = nads.alignments.map((_, i) => {
      const canvas = make("canvas", { className: "pixels" });
      const context = fit(canvas, nads.width * scale, nads.height * scale);
      context.imageSmoothingEnabled = false;
      context.drawImage(image, i * nads.width, 0, nads.width, nads.height, 0, 0, nads.width * scale, nads.height * scale);
      return canvas;
    });
    drawings.push({ title: name, images, alignments: nads.alignments });
    const row = make("div", { className: "directions" }, ...images.map((canvas, i) => make("figure", {}, canvas, make("figcaption", {}, make("b", {}, String(i + 1)), ` ${show(nads.alignments[i])}`))));
    row.setAttribute("role", "img");
    row.setAttribute("aria-label", `Anisotropy directions${name ? ` at ${name}` : ""}; alignments ${nads.alignments.map((x) => show(x)).join(", ")}`);
    holder.append(...(name ? [make("h4", {}, name)] : []), row);
  }
  offer("nads", {
    svg: async () => drawing(20 + 96 * Math.max(...drawings.map(({ images }) => images.length)), 20 + 130 * drawings.length, drawings.map(({ title, images, alignments }, r) => words(10, 20 + 130 * r, title)
      + images.map((canvas, i) => raster(canvas, 10 + 96 * i, 28 + 130 * r, 84, 84) + words(10 + 96 * i, 126 + 130 * r, show(alignments[i]))).join("")).join("")),
    csv: async () => [["checkpoint", "direction", "alignment"], ...drawings.flatMap(({ title, alignments }) => alignments.map((value, i) => [title, i + 1, value]))],
  });
  return { rows: () => drawings.map(({ alignments }) => alignments) };
}
