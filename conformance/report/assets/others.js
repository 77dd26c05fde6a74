// Who agrees with whom: every subject on the same case, in the clusters of equal behaviour that the run's writer found.
import { el, isolated, ratioText, shortened } from "./dom.js";
import { rows, symbols } from "./data.js";
import { section } from "./panels.js";
import { sidesOf } from "./sides.js";
import { fragment, readState } from "./state.js";

export function othersPanel(row) {
  const alike = rows.filter((other) => other.case === row.case);
  if (alike.length < 2) return null;
  return section(
    "Who agrees with whom",
    el(
      "p",
      { class: "lead" },
      "Alike in verdict, kinds, outputs and worst ratio (within a factor of 2); ",
      "not compared with each other element by element.",
    ),
    el("ul", { class: "clusters" }, ...clustersOf(alike).map((cluster) => clusterLine(cluster, row))),
  );
}

function clustersOf(alike) {
  const clusters = [];
  for (const row of alike) (clusters[row.cluster] ??= []).push(row);
  return clusters;
}

function clusterLine(cluster, row) {
  const [{ status, kinds, ratio, diverging, summary }] = cluster;
  const what = diverging
    ? kinds.join(", ")
    : status === "agrees"
      ? summary || sidesOf(row).agrees
      : "";
  const names = cluster.flatMap((other, place) => [place ? " = " : "", subjectLink(other, row)]);
  return el(
    "li",
    {},
    el(
      "span",
      { class: `verdict s-${status}` },
      el("span", { class: "symbol", "aria-hidden": "true" }, symbols[status]),
      ` ${status} `,
    ),
    el("span", { class: "n" }, isolated(what)),
    diverging && ratio !== null ? el("span", { class: "number n" }, ` ${ratioText(ratio)}`) : null,
    el("div", {}, ...names),
  );
}

function subjectLink(other, row) {
  if (other === row) return el("b", { "aria-current": "page" }, shortened(other.subject));
  return el("a", { href: fragment({ q: readState().q, row: other.node }) }, shortened(other.subject));
}
