// The words of the search box: field:value, field:=whole, field:one,other, -not, "as written".
import { factKeys, rows } from "./data.js";

const TOKEN = /(-?)(?:([\w.-]+):)?(=?)(?:"([^"]*)"?|([^\s"]\S*))/g;

const WHOLE = new Set(["is", "changed", "pattern"]);

/** Field of a row by the word before the colon; null where there is no such field. */
function reader(field) {
  switch (field.toLowerCase()) {
    case "subject":
      return (row) => [row.subject];
    case "kind":
      return (row) => row.kinds;
    case "file":
      return (row) => [row.case.file];
    case "case":
      return (row) => [row.case.name];
    case "changed":
      return (row) => [row.change, row.change && row.change !== "added" ? "yes" : "no"];
    case "pattern":
      return (row) => [row.case.pattern];
    case "is":
      return (row) => [row.status, row.diverging ? "diverging" : ""];
    default: {
      const key =
        factKeys.find((name) => name === field) ??
        factKeys.find((name) => name.toLowerCase() === field.toLowerCase());
      return key === undefined ? null : (row) => [row.case.facts[key] ?? ""].flat();
    }
  }
}

/** Subjects that diverge on a case, by the number of the case. */
const divergers = new Map();
for (const row of rows) {
  if (row.diverging)
    divergers.set(row.case.number, [...(divergers.get(row.case.number) ?? []), row.subject.toLowerCase()]);
}

function test(field, values, exact) {
  if (field === "only") {
    return (row) => {
      const subjects = divergers.get(row.case.number) ?? [];
      return (
        subjects.length > 0 && subjects.every((subject) => values.some((value) => subject.startsWith(value)))
      );
    };
  }
  const read = reader(field);
  const whole = exact || WHOLE.has(field);
  return (row) =>
    read(row).some((found) => {
      const text = String(found).toLowerCase();
      return values.some((value) => (whole ? text === value : text.includes(value)));
    });
}

function freeText(word) {
  return (row) =>
    [row.node, row.summary, row.case.why, row.case.name, row.subject].some((text) =>
      text.toLowerCase().includes(word),
    );
}

/** The tests that a query asks for; a row matches when all of them hold. */
export function parse(query) {
  const tests = [];
  for (const [whole, minus, field, equals, quoted, bare] of query.matchAll(TOKEN)) {
    const known = field !== undefined && (field === "only" || reader(field) !== null);
    const text = (quoted ?? bare).toLowerCase();
    const values = quoted === undefined ? text.split(",").filter(Boolean) : [text];
    const word = (minus ? whole.slice(1) : whole).toLowerCase().replace(/^"|"$/g, "");
    const holds = known ? test(field, values, equals === "=") : freeText(word);
    tests.push(minus ? (row) => !holds(row) : holds);
  }
  return tests;
}

/** The rows that match, in the order of the run. */
export function search(query) {
  const tests = parse(query);
  return rows.filter((row) => tests.every((holds) => holds(row)));
}

/** A word for the search box: quoted when it has to be. */
export function wordFor(field, value, exact) {
  const text = /[\s,"]/.test(value) ? `"${value.replaceAll('"', "")}"` : value;
  return `${field}:${exact ? "=" : ""}${text}`;
}

/** The query as its words. */
export function wordsOf(query) {
  return [...query.matchAll(TOKEN)].map(([whole]) => whole);
}
