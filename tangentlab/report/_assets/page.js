const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const coarse = matchMedia("(pointer: coarse)").matches;
const errors = [];

// Light and dark: what the reader chose, or what the system says.
const system = matchMedia("(prefers-color-scheme: dark)");
let chosen = null;
try { chosen = localStorage.getItem("tangentlab-theme"); } catch { /* a page from a file may have no storage */ }
const theme = () => chosen ?? (system.matches ? "dark" : "light");
const applyTheme = () => { root.dataset.theme = theme(); redraw(); };
document.getElementById("theme").addEventListener("click", () => {
  chosen = theme() === "dark" ? "light" : "dark";
  try { localStorage.setItem("tangentlab-theme", chosen); } catch { /* as above */ }
  applyTheme();
});
system.addEventListener("change", () => { if (!chosen) applyTheme(); });

// Charts. A panel is drawn when it comes near the view, or when nothing else is to do.
const views = new Map();
function panelSpec(figure, index) {
  const spec = structuredClone(data.figures[figure][index]);
  if (!spec.usermeta?.fixed) { spec.width = "container"; spec.autosize = { type: "fit-x", contains: "padding" }; }
  if (coarse) dropZoom(spec);  // a finger scrolls the page
  return spec;
}
function dropZoom(part) {
  if (Array.isArray(part)) part.forEach(dropZoom);
  else if (part && typeof part === "object") {
    if (Array.isArray(part.params)) part.params = part.params.filter((param) => param.bind !== "scales");
    for (const [name, value] of Object.entries(part)) if (name !== "values") dropZoom(value);
  }
}
async function draw(element, height) {
  const spec = panelSpec(element.dataset.figure, element.dataset.panel);
  if (height) spec.height = height;
  element.dataset.state = "drawing";
  try {
    const result = await vegaEmbed(element, spec, {
      mode: "vega-lite", renderer: "svg", config: data.themes[theme()],
      ast: true,  // expressions are interpreted: the page allows no eval
      forceActionsMenu: true,  // else the links lie open on the chart
      defaultStyle: false, tooltip: { theme: theme(), disableDefaultStyle: true },  // in the page's own style
      actions: { export: true, source: false, compiled: false, editor: false },
    });
    views.get(element)?.finalize();
    views.set(element, result);
    element.dataset.state = "drawn";
    element.classList.add("drawn");
  } catch (error) {
    errors.push(`${element.dataset.figure} ${element.dataset.panel}: ${error}`);
    element.dataset.state = "failed";
    element.textContent = `This panel could not be drawn: ${error.message}`;
  }
}
function redraw() { for (const element of views.keys()) if (element.isConnected) draw(element); }
const panels = [...document.querySelectorAll("main .panel")];
for (const panel of panels) if (data.figures[panel.dataset.figure][panel.dataset.panel].usermeta?.fixed) panel.classList.add("wide");
root.dataset.theme = theme();
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); if (!entry.target.dataset.state) draw(entry.target); }
}, { rootMargin: "600px" });
panels.forEach((panel) => near.observe(panel));
const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 60));
async function drawRest() {
  const next = panels.find((panel) => !panel.dataset.state);
  if (!next) return;
  await draw(next);
  idle(drawRest);
}
idle(drawRest);

// A larger figure.
const dialog = document.getElementById("large");
const stage = dialog.querySelector("div");
document.addEventListener("click", async (event) => {
  const button = event.target.closest(".enlarge");
  if (!button) return;
  stage.replaceChildren();
  dialog.showModal();
  for (let i = 0; i < data.figures[button.dataset.figure].length; i++) {
    const element = Object.assign(document.createElement("div"), { className: "panel" });
    Object.assign(element.dataset, { figure: button.dataset.figure, panel: i });
    stage.append(element);
    await draw(element, data.figures[button.dataset.figure][i].usermeta?.fixed ? undefined : 380);
  }
});
dialog.querySelector(".close").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => {
  for (const element of stage.children) { views.get(element)?.finalize(); views.delete(element); }
  stage.replaceChildren();
});

// Sorting and filtering the claims.
const key = (cell) => {
  const text = cell.dataset.value ?? cell.textContent;
  return text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text.toLowerCase();
};
const compare = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
function turn(header) {
  const up = header.getAttribute("aria-sort") !== "ascending";
  for (const other of header.parentElement.children) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  return up ? 1 : -1;
}
for (const table of document.querySelectorAll("table.sortable")) {
  table.tHead.addEventListener("click", (event) => {
    const header = event.target.closest("th");
    if (!header) return;
    const sign = turn(header);
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => sign * compare(key(a.cells[header.cellIndex]), key(b.cells[header.cellIndex])));
    table.tBodies[0].append(...rows);
  });
}
const claims = document.getElementById("all-claims");
const search = document.querySelector('[data-filter="all-claims"]');
const count = document.querySelector('[data-count="all-claims"]');
let verdict = null;
function filterClaims() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of claims.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !(words.every((word) => text.includes(word)) && (!verdict || row.dataset.verdict === verdict));
    shown += !row.hidden;
  }
  count.textContent = `${shown} of ${claims.tBodies[0].rows.length} claims`;
}
search.addEventListener("input", filterClaims);
for (const card of document.querySelectorAll(".card")) {
  card.addEventListener("click", () => {
    verdict = verdict === card.dataset.verdict ? null : card.dataset.verdict;
    for (const other of document.querySelectorAll(".card")) other.setAttribute("aria-pressed", String(other.dataset.verdict === verdict));
    filterClaims();
  });
}
filterClaims();

// Tables of measurements, made when they are opened.
const PAGE = 25;
const show = (value) => (value === null ? "–" : typeof value === "number" ? (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(5)))).replace("-", "−") : String(value));
function makeTable(holder) {
  const { columns, numeric, rows, total } = data.tables[holder.dataset.table];
  let order = rows.slice(), page = 0, words = [];
  const tools = Object.assign(document.createElement("div"), { className: "tools" });
  const label = document.createElement("label");
  const box = Object.assign(document.createElement("input"), { type: "search", placeholder: "filter rows" });
  label.append("Filter ", box);
  tools.append(label);
  const scroll = Object.assign(document.createElement("div"), { className: "scroll", tabIndex: 0 });
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const name of columns) {
    const cell = Object.assign(document.createElement("th"), { scope: "col" });
    cell.append(Object.assign(document.createElement("button"), { type: "button", textContent: name }));
    head.append(cell);
  }
  const body = table.createTBody();
  const pager = Object.assign(document.createElement("div"), { className: "pager" });
  const back = Object.assign(document.createElement("button"), { type: "button", textContent: "←", ariaLabel: "Previous rows" });
  const forth = Object.assign(document.createElement("button"), { type: "button", textContent: "→", ariaLabel: "Next rows" });
  const status = Object.assign(document.createElement("span"), { role: "status" });
  pager.append(back, forth, status);
  scroll.append(table);
  holder.append(tools, scroll, pager);
  function render() {
    const found = words.length ? order.filter((row) => { const text = row.join(" ").toLowerCase(); return words.every((word) => text.includes(word)); }) : order;
    page = Math.max(0, Math.min(page, Math.ceil(found.length / PAGE) - 1));
    const part = found.slice(page * PAGE, (page + 1) * PAGE);
    body.replaceChildren(...part.map((row) => {
      const line = document.createElement("tr");
      row.forEach((value, i) => line.append(Object.assign(document.createElement("td"), { className: numeric[i] ? "number" : "", textContent: show(value) })));
      return line;
    }));
    const end = Math.min(found.length, (page + 1) * PAGE);
    status.textContent = `${found.length ? page * PAGE + 1 : 0}–${end} of ${found.length}` + (total > rows.length ? ` (the first ${rows.length} of ${total}; all are in table.csv)` : "");
    back.disabled = page === 0;
    forth.disabled = end >= found.length;
  }
  head.addEventListener("click", (event) => {
    const cell = event.target.closest("th");
    if (!cell) return;
    const sign = turn(cell), i = cell.cellIndex;
    order.sort((a, b) => (a[i] === null) - (b[i] === null) || sign * compare(a[i], b[i]));
    page = 0;
    render();
  });
  box.addEventListener("input", () => { words = box.value.toLowerCase().split(/\s+/).filter(Boolean); page = 0; render(); });
  back.addEventListener("click", () => { page--; render(); });
  forth.addEventListener("click", () => { page++; render(); });
  render();
}
for (const holder of document.querySelectorAll(".data")) {
  holder.parentElement.addEventListener("toggle", () => { if (!holder.childElementCount) makeTable(holder); });
}

// Small things: copying commands, the place in the list, the list closed on a phone.
document.addEventListener("click", async (event) => {
  const button = event.target.closest(".copy");
  if (!button) return;
  try { await navigator.clipboard.writeText(button.previousElementSibling.textContent); button.textContent = "Copied"; }
  catch { button.textContent = "Select and copy"; }
});
const links = new Map([...document.querySelectorAll("nav li a")].map((link) => [link.hash.slice(1), link]));
const place = new IntersectionObserver((entries) => {
  for (const entry of entries) links.get(entry.target.id)?.classList.toggle("here", entry.isIntersecting);
}, { rootMargin: "-20% 0px -60% 0px" });
document.querySelectorAll("article").forEach((article) => place.observe(article));
if (matchMedia("(max-width: 62rem)").matches) document.querySelector("nav details").open = false;
window.tangentlab = { errors, views, panels };
