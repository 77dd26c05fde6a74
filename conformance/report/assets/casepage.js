// The page of one (case, subject).
import { boundPanel } from "./bound.js";
import { byId, el, isolated, plural } from "./dom.js";
import { fact, meanings, nameParts, rowOf, since, symbols } from "./data.js";
import { heatSection } from "./heatsection.js";
import { maskPictures } from "./maskpicture.js";
import { matches } from "./overview.js";
import { othersPanel } from "./others.js";
import {
  factsPanel,
  findingsPanel,
  ledgerPanel,
  measuresPanel,
  reproduceCommand,
  reproducerPanel,
  section,
  tracebackPanel,
  worstPanel,
} from "./panels.js";
import { fragment } from "./state.js";
import { blockedOf, detailOf, outputsOf } from "./tensors.js";

let open = { node: null, heat: null };

/** The rows before and after the open one among those the filter leaves. */
export function neighbours() {
  const list = matches();
  const place = list.findIndex((row) => row.node === open.node);
  return {
    before: list[place - 1] ?? null,
    after: place < 0 ? (list[0] ?? null) : (list[place + 1] ?? null),
    place,
    total: list.length,
  };
}

export const openNode = () => open.node;

/** Show the page of the row in the state; on the page already, only turn its heat maps. */
export async function showCase(state) {
  const row = rowOf(state.row);
  if (open.node === state.row && open.heat) {
    open.heat.show(state, state.element !== null);
    return;
  }
  open = { node: state.row, heat: null };
  const page = byId("case");
  if (!row) {
    page.replaceChildren(
      backLink(state),
      el("h1", {}, "No such case"),
      el("p", {}, "This run holds no row named ", isolated(state.row), "."),
    );
    return;
  }
  document.title = `${row.case.name} [${row.subject}] — attention conformance`;
  page.replaceChildren(navigation(state), ...heading(row));
  const detail = row.diverging ? await detailOf(row) : null;
  const outputs = detail ? await outputsOf(row, detail.outputs) : new Map();
  if (open.node !== state.row) return;
  const blocked = blockedOf(detail);
  const heat = outputs.size ? heatSection(row, outputs, blocked) : null;
  page.append(
    el(
      "div",
      { class: "columns" },
      el(
        "div",
        {},
        ...[findingsPanel(row, detail), ledgerPanel(detail), maskPanel(row, blocked)].filter(Boolean),
      ),
      el("div", {}, factsPanel(row), othersPanel(row)),
    ),
    ...[
      heat?.element ?? absence(row, detail),
      worstPanel(row, detail, outputs),
      boundPanel(detail),
      measuresPanel(detail),
      reproducerPanel(row, detail),
      tracebackPanel(detail),
    ].filter(Boolean),
  );
  open.heat = heat;
  heat?.show(state, state.element !== null);
}

export function closeCase() {
  open = { node: null, heat: null };
  byId("case").replaceChildren();
}

/** Draw every picture again, after the system turned light or dark or the window changed its width. */
export function redraw() {
  open.heat?.redraw();
  for (const canvas of document.querySelectorAll(".mask-picture canvas")) canvas.redraw();
}

const backLink = (state) => el("a", { href: fragment({ q: state.q }), class: "back" }, "← All cases");

function navigation(state) {
  const { before, after, place, total } = neighbours();
  const step = (row, text, key) =>
    row
      ? el(
          "a",
          {
            href: fragment({ q: state.q, row: row.node }),
            title: `${row.case.name} [${row.subject}]`.slice(0, 200),
            "aria-keyshortcuts": key,
          },
          text,
        )
      : el("span", { class: "off" }, text);
  return el(
    "nav",
    { "aria-label": "Cases" },
    backLink(state),
    el(
      "span",
      { class: "steps" },
      place >= 0 ? el("span", { class: "n" }, `${place + 1} of ${total}`) : null,
      step(before, "[ previous", "["),
      step(after, "next ]", "]"),
    ),
  );
}

function heading(row) {
  const { file, line, why } = row.case;
  const [suite, rest] = nameParts(row.case);
  return [
    el(
      "p",
      { class: `verdict s-${row.status}` },
      el("span", { class: "symbol", "aria-hidden": "true" }, symbols[row.status]),
      ` ${row.status}`,
      el("span", { class: "n" }, ` — ${meanings[row.status]}`),
    ),
    el("h1", {}, suite ? isolated(suite, "topic") : null, isolated(rest)),
    el("p", { class: "by" }, isolated(row.subject, "subject"), " · ", isolated(`${file}:${line}`, "where")),
    row.change
      ? el("p", { class: "since" }, el("strong", {}, row.change), " since ", isolated(since))
      : null,
    why ? el("p", { class: "why" }, isolated(why)) : null,
    el("p", { class: "command" }, el("code", {}, isolated(reproduceCommand(row)))),
  ].filter(Boolean);
}

function maskPanel(row, blocked) {
  const picture = blocked && maskPictures(blocked);
  const words = fact(row, "mask") || "none";
  if (picture) return section("Mask", picture);
  return blocked ? section("Mask", el("p", { class: "lead" }, `${words}: nothing is blocked.`)) : null;
}

/** Why there is no heat map. */
function absence(row, detail) {
  if (!row.diverging) return null;
  if (!detail)
    return el(
      "p",
      { class: "lead" },
      "Details of this row were left out to keep the page small; the run’s folder has them.",
    );
  if (detail.note === "size")
    return el(
      "p",
      { class: "lead" },
      "The heat maps of this row were left out to keep the page small; the run’s folder has its tensors.",
    );
  if (detail.note === "group")
    return el(
      "p",
      { class: "lead" },
      `Heat maps are kept for the worst row of each group of known divergences; this row is like it. ${plural(detail.findings.length, "finding")}.`,
    );
  return null;
}
