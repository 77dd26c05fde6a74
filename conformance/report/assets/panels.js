// Parts of a case page that are text: facts, findings, worst elements, measures, ledger entry, reproducer.
import { el, isolated, plural, ratioText, say, shortened, visibleText } from "./dom.js";
import { fact, factKeys } from "./data.js";
import { sidesOf } from "./sides.js";
import { fragment, readState } from "./state.js";

const SIZES = ["B", "T", "S", "H", "K", "D", "Dh", "Dhv", "kdim", "vdim", "output_dim"];
const UNUSED = new Set(["none", "default", "false", ""]);
const LEGEND = {
  B: "batch",
  T: "target length",
  S: "source length",
  H: "query heads",
  K: "key/value heads",
  D: "embed_dim",
  Dh: "head_dim",
  Dhv: "value head width",
  kdim: "key input width",
  vdim: "value input width",
  output_dim: "output width",
};
const FIRST = ["dtype", "mask", "route", "data", "check", "layout", "sharing", "calls"];

/** A recorded value as one line of text. */
function shownFact(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(shownFact).join(", ");
  if (typeof value === "object" && value !== null)
    return Object.entries(value)
      .map(([key, item]) => `${key} ${shownFact(item)}`)
      .join("; ");
  return String(value);
}

/** Sizes as one line, then every other property of the case. */
export function factsPanel(row) {
  const sizes = SIZES.filter((name) => factKeys.includes(name) && fact(row, name) !== "");
  const others = [
    ...FIRST.filter((key) => factKeys.includes(key)),
    ...factKeys.filter((key) => !FIRST.includes(key) && !SIZES.includes(key)),
  ];
  const line = sizes.map((name) =>
    el("span", {}, el("abbr", { title: LEGEND[name] }, name), ` ${fact(row, name)} `),
  );
  const used = (key) => key === "mask" || !UNUSED.has(String(fact(row, key)));
  const rest = others.filter((key) => !used(key)).map((key) => key.replaceAll("_", " "));
  const list = others
    .filter(used)
    .map((key) =>
      el(
        "div",
        {},
        el("dt", {}, shortened(key.replaceAll("_", " "))),
        el("dd", {}, isolated(shownFact(fact(row, key)))),
      ),
    );
  return section(
    "The case",
    sizes.length ? el("p", { class: "sizes" }, ...line) : null,
    el("dl", { class: "facts" }, ...list),
    rest.length ? el("p", { class: "lead unused" }, `Not used: ${rest.join(", ")}.`) : null,
  );
}

/** What was found, one line for each kind of fault in one output. */
export function findingsPanel(row, detail) {
  if (!detail?.findings.length) {
    const text =
      row.status === "agrees" && !row.summary // with a summary, an ill-formed call was refused: nothing was judged
        ? `Every judged element lies within its bound${row.ratio === null ? "" : `; the closest came to ${ratioText(row.ratio)} of it`}.`
        : row.summary;
    return section("What was found", el("p", { class: "message" }, isolated(text)));
  }
  const items = detail.findings.map((finding) =>
    el(
      "li",
      {},
      el("code", {}, isolated(finding.output)),
      " ",
      el("strong", {}, isolated(finding.kind)),
      " ",
      el(
        "span",
        { class: "n" },
        `${finding.count} of ${plural(finding.total, "element")}, worst ratio ${finding.ratio}`,
      ),
      el("p", { class: "message" }, isolated(finding.message)),
    ),
  );
  const more = detail.more ? el("p", { class: "lead" }, `and ${plural(detail.more, "other finding")}`) : null;
  return section("What was found", el("ul", { class: "findings" }, ...items), more);
}

/** The worst elements, each a link to its cell where there is a heat map of it. */
export function worstPanel(row, detail, outputs) {
  if (!detail?.worst.length) return null;
  const lines = detail.worst.map(([output, index, expected, actual, error, bound, ratio]) => {
    const place = shortened(`${output}[${index.join(", ")}]`);
    const target = fragment({ q: readState().q, row: row.node, output, view: "ratio", element: index });
    const cell = outputs.has(output)
      ? el("a", { href: target, "data-element": index.join(",") }, place)
      : place;
    return el(
      "tr",
      {},
      el("td", {}, cell),
      ...[expected, actual, error, bound, ratio].map((text) => el("td", { class: "number" }, text)),
    );
  });
  const sides = sidesOf(row);
  const heads = [sides.expected, sides.actual, "error", "bound", "ratio"].map((name) =>
    el("th", { scope: "col", class: "number" }, name),
  );
  return section(
    "Worst elements",
    scroll(
      "Table of the worst elements",
      el(
        "table",
        { class: "plain worst-elements" },
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "element"), ...heads)),
        el("tbody", {}, ...lines),
      ),
    ),
  );
}

/** Every output that was compared. */
export function measuresPanel(detail) {
  if (!detail?.measures.length) return null;
  const columns = [
    ["elements", "elements"],
    ["not judged", "not_judged"],
    ["bit-equal", "bit_equal"],
    ["max |error|", "max_abs_error"],
    ["max ulp", "max_ulp"],
    ["p99 ratio", "p99_ratio"],
    ["max ratio", "max_ratio"],
    ["rms(error/σ)", "rms"],
  ];
  const lines = detail.measures.map((measure) =>
    el(
      "tr",
      {},
      el("td", {}, el("code", {}, shortened(measure.output))),
      ...columns.map(([, name]) => el("td", { class: "number" }, String(measure[name] ?? "—"))),
      el("td", {}, measure.assert_close ? "passes" : "fails"),
    ),
  );
  return section(
    "What was checked",
    scroll(
      "Measures of each output",
      el(
        "table",
        { class: "plain" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col" }, "output"),
            ...columns.map(([title]) => el("th", { scope: "col", class: "number" }, title)),
            el("th", { scope: "col" }, "assert_close"),
          ),
        ),
        el("tbody", {}, ...lines),
      ),
    ),
  );
}

/** The ledger entry that explains a known or stale row. */
export function ledgerPanel(detail) {
  if (!detail?.ledger) return null;
  const { reason, link, versions, since, ...others } = detail.ledger;
  const list = Object.entries({ link, versions, since, ...others })
    .filter(([, value]) => value != null && shownFact(value) !== "")
    .map(([key, value]) =>
      el(
        "div",
        { class: shownFact(value).length > 40 ? "wide" : null },
        el("dt", {}, shortened(key.replaceAll("_", " "))),
        el(
          "dd",
          {},
          /^https?:\/\//.test(value)
            ? el("a", { href: value, rel: "noreferrer" }, shortened(value))
            : isolated(shownFact(value)),
        ),
      ),
    );
  return section(
    "Known divergence",
    reason ? el("p", { class: "message" }, isolated(reason)) : null,
    el("dl", { class: "facts" }, ...list),
  );
}

/** A script that shows the divergence without this project, and a button that copies it. */
export function reproducerPanel(row, detail) {
  if (detail?.script === "size")
    return section(
      "Reproducer",
      el(
        "p",
        { class: "lead" },
        "Not in this page, to keep it small. This writes it: ",
        el("code", {}, `${reproduceCommand(row)} --script`),
      ),
    );
  if (!detail?.reproducer) return null;
  const code = el("pre", { tabindex: 0, class: "code" }, el("code", {}, detail.reproducer));
  const button = el(
    "button",
    { type: "button", "data-copy": true, onclick: () => copy(detail.reproducer, code, button) },
    "Copy",
  );
  return section(
    "Reproducer",
    el("p", { class: "lead" }, "Needs NumPy and the framework, not this project. ", button),
    code,
  );
}

export function tracebackPanel(detail) {
  return detail?.traceback
    ? section(
        "Traceback",
        el("pre", { tabindex: 0, class: "code" }, el("code", {}, isolated(detail.traceback))),
      )
    : null;
}

async function copy(text, code, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    say("Copied");
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "Selected: press Ctrl C";
  }
  setTimeout(() => (button.textContent = "Copy"), 2500);
}

/** The command that runs a row again. */
export function reproduceCommand(row) {
  const quoted = `${row.case.name}[${row.subject}]`.replaceAll("'", `'"'"'`);
  return visibleText(`python -m conformance repro '${quoted}'`);
}

/** A part of the page with its heading. */
export function section(title, ...children) {
  return el("section", { "aria-label": title }, el("h2", {}, title), ...children);
}

/** A box that scrolls sideways on a narrow screen and can be scrolled with the keyboard. */
export function scroll(label, child) {
  return el("div", { class: "scroll", role: "region", "aria-label": label, tabindex: 0 }, child);
}
