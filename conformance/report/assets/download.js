// The rows of the current filter as a file.
import { el } from "./dom.js";
import { factKeys } from "./data.js";

const COLUMNS = ["node", "file", "line", "case", "subject", "status", "kinds", "ratio", "summary"];

function record(row) {
  const { file, line, name, facts } = row.case;
  const ratio = row.ratio === null || Number.isFinite(row.ratio) ? row.ratio : "inf";
  return {
    node: row.node,
    file,
    line,
    case: name,
    subject: row.subject,
    status: row.status,
    kinds: row.kinds.join(" "),
    ratio,
    summary: row.summary,
    facts,
  };
}

/** A field of CSV. Text that a spreadsheet would run as a formula is preceded by an apostrophe. */
function csvField(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function asCsv(rows) {
  const lines = rows
    .map(record)
    .map((entry) => [...COLUMNS.map((name) => entry[name]), ...factKeys.map((key) => entry.facts[key])]);
  return (
    [[...COLUMNS, ...factKeys], ...lines].map((line) => line.map(csvField).join(",")).join("\r\n") + "\r\n"
  );
}

export const asJson = (rows) => JSON.stringify(rows.map(record), null, 1) + "\n";

/** Offer the rows as a download, `format` being csv or json. */
export function download(format, rows) {
  const [text, type] = format === "csv" ? [asCsv(rows), "text/csv"] : [asJson(rows), "application/json"];
  const address = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: address, download: `attention-conformance.${format}` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
