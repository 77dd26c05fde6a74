// Chips that write words into the search box.
import { byId, count, el, shortened } from "./dom.js";
import { changes, rows, statuses, symbols } from "./data.js";
import { wordFor, wordsOf } from "./search.js";

const SHOWN = 8;

/** Facets as [label, field, exact, values with their counts]. Diverging rows decide which kinds and masks are shown. */
function facets() {
  const diverging = rows.filter((row) => row.diverging);
  const some = diverging.length ? diverging : rows;
  return [
    ["is", "is", false, inOrder(statuses, (row) => row.status)],
    ["changed", "changed", false, inOrder(changes, (row) => row.change)],
    ["kind", "kind", true, most(some, (row) => row.kinds)],
    ["dtype", "dtype", true, most(rows, (row) => [row.case.facts.dtype])],
    ["mask", "mask", false, most(some, (row) => String(row.case.facts.mask ?? "none").split("+"))],
  ];
}

/** The values in the order given, with their counts. */
function inOrder(values, read) {
  const counts = tally(rows, (row) => [read(row)]);
  return values.map((value) => [value, counts.get(value) ?? 0]);
}

function tally(some, values) {
  const counts = new Map();
  for (const row of some)
    for (const value of new Set(values(row))) if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}

/** The values most frequent in some rows, each with its count in all rows: those that its chip will find. */
function most(some, values) {
  const counts = tally(rows, values);
  const frequent = [...tally(some, values)].sort((one, other) => other[1] - one[1]).slice(0, SHOWN);
  return frequent.map(([value]) => [value, counts.get(value)]);
}

/** Fill the bar; `write` receives the new query when a chip is pressed. */
export function buildChips(write) {
  for (const [label, field, exact, values] of facets()) {
    const chips = values
      .filter(([, number]) => number)
      .map(([value, number]) => chip(field, exact, value, number, write));
    if (chips.length > 1 || (field === "is" && chips.length)) {
      byId("chips").append(
        el(
          "div",
          { class: "facet", role: "group", "aria-label": label },
          el("span", { "aria-hidden": "true" }, label),
          ...chips,
        ),
      );
    }
  }
}

function chip(field, exact, value, number, write) {
  const word = wordFor(field, value, exact);
  const symbol =
    field === "is" ? el("span", { class: `symbol s-${value}`, "aria-hidden": "true" }, symbols[value]) : null;
  const press = () => {
    const words = wordsOf(byId("query").value);
    write(
      words.includes(word) ? words.filter((other) => other !== word).join(" ") : [...words, word].join(" "),
    );
  };
  return el(
    "button",
    { type: "button", class: "chip", "data-word": word, "aria-pressed": "false", onclick: press },
    symbol,
    shortened(value),
    " ",
    el("span", { class: "n" }, count(number)),
  );
}

/** Show which chips the query holds. */
export function markChips(query) {
  const words = new Set(wordsOf(query));
  for (const button of byId("chips").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(words.has(button.dataset.word)));
  }
}
