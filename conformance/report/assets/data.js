// Every row of the run, from the index in the page. All that the page holds for its scripts is deflated and in base64.
import { byId } from "./dom.js";

export const bytesOf = (text) => Uint8Array.from(atob(text.trim()), (character) => character.charCodeAt(0));

/** The bytes that an element of the page holds; null where there is no such element. */
export async function inflate(id) {
  const holder = byId(id);
  if (!holder) return null;
  const stream = new Blob([bytesOf(holder.textContent)])
    .stream()
    .pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

export const jsonOf = (buffer) => JSON.parse(new TextDecoder().decode(buffer));

const index = jsonOf(await inflate("index"));

export const statuses = index.statuses;
export const symbols = index.symbols;
export const meanings = index.meanings;
export const changes = index.changes;
/** Name of the earlier run that this one is compared with, or null. */
export const since = index.since;
export const factKeys = index.keys;

const cases = index.cases.map(([file, line, suite, name, why, pattern, ...facts], number) => ({
  number,
  file: index.values[file],
  line,
  suite: index.values[suite],
  name: index.values[name],
  why: index.values[why],
  pattern,
  facts: Object.fromEntries(
    index.keys.map((key, place) => [key, index.values[facts[place]]]).filter(([, value]) => value !== null),
  ),
}));

const listed = new Set(index.listed);

/** All rows in the order of the run. `listed` rows stand in the page as HTML. */
export const rows = index.rows.map(([place, subject, status, ratio, summary, kinds, node, ...more], number) => ({
  number,
  case: cases[place],
  subject: index.values[subject],
  status: statuses[status],
  diverging: status < index.diverging,
  ratio: ratio === null ? null : Number(ratio),
  summary: index.values[summary],
  kinds: index.values[kinds] ? index.values[kinds].split(" ") : [],
  node: index.values[node],
  cluster: more[0], // rows of one case behave alike that have one number; the most severe have the lowest
  change: more[1] ? index.changes[more[1] - 1] : "",
  listed: listed.has(number),
}));

const byNode = new Map(rows.map((row) => [row.node, row]));
const place = new Map(index.listed.map((number, order) => [number, order]));

export const rowOf = (node) => byNode.get(node) ?? null;

/** Rows in the order in which the page shows them: the listed divergences, then the others by severity. */
export function inPageOrder(some) {
  const rank = (row) =>
    row.listed ? place.get(row.number) : rows.length * (1 + statuses.indexOf(row.status)) + row.number;
  return [...some].sort((one, other) => rank(one) - rank(other));
}

export const fact = (row, key) => row.case.facts[key] ?? "";

/** A case's id in two parts: its suite, when the id begins with it, and the rest. */
export function nameParts({ name, suite }) {
  return suite && name.startsWith(`${suite}/`) ? [`${suite}/`, name.slice(suite.length + 1)] : ["", name];
}
