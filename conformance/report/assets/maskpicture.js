// The mask as a picture: one square for each position, hatched where attention is blocked.
import { el, plural } from "./dom.js";
import { hatch, inks } from "./colour.js";

const PICTURES = 8;

/** Distinct [T, S] faces of the blocked field, each with the samples and heads that share it. */
function faces({ shape: [batch, heads, targets, sources], at }) {
  const found = new Map();
  for (let sample = 0; sample < batch; sample += 1)
    for (let head = 0; head < heads; head += 1) {
      let key = "";
      for (let target = 0; target < targets; target += 1)
        for (let source = 0; source < sources; source += 1)
          key += at(sample, head, target, source) ? "1" : "0";
      found.set(key, [...(found.get(key) ?? []), [sample, head]]);
    }
  return [...found].map(([bits, places]) => ({ bits, places, targets, sources, batch, heads }));
}

function caption({ places, batch, heads }) {
  if (places.length === batch * heads) return batch * heads === 1 ? "" : "every sample and head";
  const samples = [...new Set(places.map(([sample]) => sample))];
  if (places.length === samples.length * heads) return `sample ${samples.join(", ")}`;
  const head = [...new Set(places.map(([, number]) => number))];
  return head.length * batch === places.length
    ? `head ${head.join(", ")}`
    : `sample ${samples.join(", ")}, head ${head.join(", ")}`;
}

/** A figure for each distinct face, or null when nothing is blocked anywhere. */
export function maskPictures(blocked) {
  const all = faces(blocked);
  if (all.every(({ bits }) => !bits.includes("1"))) return null;
  const figures = all.slice(0, PICTURES).map(picture);
  const rest =
    all.length > PICTURES
      ? el("p", { class: "lead" }, `and ${plural(all.length - PICTURES, "other face")}`)
      : null;
  return el("div", { class: "masks" }, ...figures, rest);
}

function picture(face) {
  const { bits, targets, sources } = face;
  const number = [...bits].filter((bit) => bit === "1").length;
  const closed = Array.from({ length: targets }, (_, row) => row).filter(
    (row) => sources && !bits.slice(row * sources, (row + 1) * sources).includes("0"),
  );
  const note = closed.length
    ? `; fully blocked ${closed.length === 1 ? "row" : "rows"} ${closed.slice(0, 12).join(", ")}${closed.length > 12 ? " …" : ""}`
    : "";
  const text = `${caption(face)}${caption(face) ? ": " : ""}${number} of ${bits.length} blocked${note}`;
  const canvas = el("canvas", {
    role: "img",
    "aria-label": `Mask, ${targets} targets down by ${sources} sources across. ${text}`,
  });
  const draw = () => paint(canvas, face, closed);
  draw();
  canvas.redraw = draw;
  return el("figure", { class: "mask-picture" }, canvas, el("figcaption", {}, text));
}

function paint(canvas, { bits, targets, sources }, closed) {
  const side = Math.max(Math.min(Math.floor(220 / Math.max(sources, targets)), 14), 1);
  const gap = side > 4 ? 1 : 0;
  const density = window.devicePixelRatio || 1;
  canvas.width = (sources * side + 6) * density;
  canvas.height = targets * side * density;
  canvas.style.width = `${sources * side + 6}px`;
  canvas.style.height = `${targets * side}px`;
  const pen = canvas.getContext("2d");
  pen.scale(density, density);
  const colours = inks();
  const lines = hatch(pen, colours.muted);
  for (let place = 0; place < bits.length; place += 1) {
    const [x, y] = [6 + (place % sources) * side, Math.floor(place / sources) * side];
    const shut = bits[place] === "1";
    pen.fillStyle = shut ? colours.rule : colours.allowed;
    pen.fillRect(x, y, side - gap, side - gap);
    if (shut && side > 3) {
      pen.fillStyle = lines;
      pen.fillRect(x, y, side - gap, side - gap);
    }
  }
  pen.fillStyle = colours.ink;
  for (const row of closed) pen.fillRect(0, row * side, 3, side - gap);
}
