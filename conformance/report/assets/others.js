// Who agrees with whom: every subject on the same case, clustered by equal behaviour.
import { el, isolated, ratioText } from "./dom.js";
import { rows, statuses, symbols } from "./data.js";
import { section } from "./panels.js";
import { fragment, readState } from "./state.js";

/** What has to be equal for two subjects to stand in one line: of agreeing ones the way they refused an ill-formed call, of diverging ones the kinds and the ratio. */
function behaviour(row) {
  if (row.diverging) return [row.status, ...[...row.kinds].sort(), ratioText(row.ratio)].join(" ");
  return row.status === "agrees" ? `agrees ${row.summary}` : row.status;
}

export function othersPanel(row) {
  const alike = rows.filter((other) => other.case === row.case);
  if (alike.length < 2) return null;
  const clusters = grouped(alike);
  const ordered = [...clusters.values()].sort(
    (one, other) => statuses.indexOf(one[0].status) - statuses.indexOf(other[0].status),
  );
  return section(
    "Who agrees with whom",
    el(
      "p",
      { class: "lead" },
      "Alike in verdict, kind and worst ratio; not compared with each other element by element.",
    ),
    el("ul", { class: "clusters" }, ...ordered.map((cluster) => clusterLine(cluster, row))),
  );
}

function grouped(alike) {
  const clusters = new Map();
  for (const row of alike) clusters.set(behaviour(row), [...(clusters.get(behaviour(row)) ?? []), row]);
  return clusters;
}

function clusterLine(cluster, row) {
  const [{ status, kinds, ratio, diverging, summary }] = cluster;
  const what = diverging
    ? `${kinds.join(", ")} ${ratio === null ? "" : ratioText(ratio)}`
    : status === "agrees"
      ? summary || "with the reference"
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
    el("div", {}, ...names),
  );
}

function subjectLink(other, row) {
  if (other === row) return el("b", { "aria-current": "page" }, isolated(other.subject));
  return el("a", { href: fragment({ q: readState().q, row: other.node }) }, isolated(other.subject));
}
