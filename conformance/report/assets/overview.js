// The first screen under a filter: the listed divergences are hidden or shown, every other match is listed on demand.
import { byId, count, el, plural, ratioText, shortened } from "./dom.js";
import { fact, inPageOrder, rows, symbols } from "./data.js";
import { fragment } from "./state.js";
import { search } from "./search.js";

const STEP = 100;
const listedRows = [...document.querySelectorAll("#divergences tr[data-row]")].map((line) => [
  Number(line.dataset.row),
  line,
]);
const families = [...document.querySelectorAll("[data-family]")].map((family) => ({
  family,
  lines: [...family.querySelectorAll("tr[data-row]")],
  counter: family.querySelector("[data-count]"),
  open: family.open,
}));

let shown = { query: null, matches: rows, others: [], listed: 0 };

/** The rows that the current filter leaves, in the order of the page. */
export const matches = () => shown.matches;

/** Apply a query to the first screen. */
export function filter(query) {
  if (query === shown.query) return;
  const found = search(query);
  const numbers = new Set(found.map((row) => row.number));
  for (const [number, line] of listedRows) line.hidden = !numbers.has(number);
  const visible = families.filter((entry) => showFamily(entry, query !== ""));
  const few = visible.length <= 3 && found.length <= STEP;
  for (const { family, open } of families) family.open = query === "" ? open : family.open || few;
  const others = inPageOrder(found.filter((row) => !row.listed));
  shown = { query, matches: inPageOrder(found), others, listed: 0 };
  byId("matched").textContent =
    query === "" ? plural(rows.length, "pair") : `${count(found.length)} of ${plural(rows.length, "pair")}`;
  byId("no-divergence").hidden = visible.length > 0 || families.length === 0;
  showOthers(query !== "" && visible.length === 0 && found.length > 0);
  markCells(query);
}

function showFamily({ family, lines, counter }, filtered) {
  const left = lines.filter((line) => !line.hidden).length;
  const all = Number(counter.dataset.count);
  family.hidden = left === 0;
  counter.textContent =
    filtered && left < all ? `${count(left)} of ${plural(all, "case")}` : plural(all, "case");
  return left > 0;
}

function showOthers(open) {
  const box = byId("others");
  byId("others-rows").replaceChildren();
  byId("others-count").textContent = `(${count(shown.others.length)})`;
  box.hidden = shown.others.length === 0;
  if (open) box.open = true;
  if (box.open) listMore();
}

/** List the next matches that do not stand in the page as HTML. */
function listMore() {
  const next = shown.others.slice(shown.listed, shown.listed + STEP);
  byId("others-rows").append(...next.map(line));
  shown.listed += next.length;
  byId("others-more").hidden = shown.listed >= shown.others.length;
}

function line(row) {
  const link = el("a", { href: fragment({ q: shown.query, row: row.node }) }, shortened(row.case.name));
  return el(
    "tr",
    { "data-row": row.number },
    el(
      "td",
      { class: `verdict s-${row.status}` },
      el("span", { class: "symbol", "aria-hidden": "true" }, symbols[row.status]),
      ` ${row.status}`,
    ),
    el("td", { class: "number" }, ratioText(row.ratio)),
    el("td", { class: "mask" }, shortened(fact(row, "mask"), 80)),
    el("td", { class: "dtype" }, shortened(fact(row, "dtype"), 40)),
    el("td", { class: "subject" }, shortened(row.subject)),
    el("td", { class: "case" }, link),
  );
}

/** The cell, row or column of the matrix, or the pattern, that is the filter. */
function markCells(query) {
  for (const link of document.querySelectorAll(".matrix a, .patterns .count")) {
    const mine = new URLSearchParams(link.getAttribute("href").slice(1)).get("q");
    if (query !== "" && mine === query) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

/** Links written in the page keep the filter when they open a row. */
export function keepFilter(event) {
  const link = event.target.closest?.('a[href^="#row="]');
  if (link && shown.query)
    link.href = fragment({ q: shown.query, row: decodeURIComponent(link.getAttribute("href").slice(5)) });
}

export function startOverview() {
  byId("others").addEventListener("toggle", () => {
    if (byId("others").open && shown.listed === 0) listMore();
  });
  byId("others-more").addEventListener("click", listMore);
  document.addEventListener("click", keepFilter, true);
}
