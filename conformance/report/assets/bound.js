// The bound of the worst element: the last operation with its numbers, and what each stage adds.
import { el } from "./dom.js";
import { scroll, section } from "./panels.js";

/** The panel, or null for a row whose bound was not taken apart. */
export function boundPanel(detail) {
  const bound = detail?.bound;
  if (!bound) return null;
  return section(
    "The bound",
    el("p", { class: "lead" }, "Of ", el("code", {}, bound.place), `, ${bound.policy}.`),
    bound.note ? el("p", { class: "message" }, bound.note) : null,
    bound.symbols ? formula(bound) : null,
    bound.parts.length ? parts(bound) : null,
    bound.parts.length
      ? el("p", { class: "lead unused" }, `${bound.legend} Derived in `, el("cite", {}, bound.section), ".")
      : null,
  );
}

/** The terms of the last operation, in symbols and as numbers. */
function formula({ bound, symbols, values, numbers }) {
  const lines = [`${bound} = ${symbols}`, values && `= ${values}`, numbers && `with ${numbers}`];
  return el("p", { class: "formula" }, ...lines.filter(Boolean).map((line) => el("span", {}, line)));
}

/** Each number in one piece on a line that may break between them. */
const numbers = (part) => part.numbers.split(", ").map((text) => el("span", {}, text));

/** A row for each stage, with its rule in a row of its own below: readable on a narrow screen. */
function parts(bound) {
  const cell = (text) => el("td", { class: "number" }, text);
  const stage = (part) => {
    const bar = el("i", { class: "share", "aria-hidden": "true" });
    bar.style.width = `${part.width}%`;
    return el(
      "tbody",
      {},
      el(
        "tr",
        {},
        el("th", { scope: "row" }, part.stage),
        cell(part.adds),
        el("td", { class: "number share-of" }, part.share, bar),
      ),
      el(
        "tr",
        { class: "rule" },
        el("td", { colspan: 3 }, `own error ${part.rule}`, el("span", { class: "n" }, ...numbers(part))),
      ),
    );
  };
  const heads = ["adds", "share"].map((name) => el("th", { scope: "col", class: "number" }, name));
  return scroll(
    "Parts of the bound",
    el(
      "table",
      { class: "bound-parts" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "stage"), ...heads)),
      ...bound.parts.map(stage),
      el(
        "tfoot",
        {},
        el("tr", {}, el("th", { scope: "row" }, "the bound"), cell(bound.sum), cell("100 %")),
      ),
    ),
  );
}
