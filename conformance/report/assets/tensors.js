// Details and tensors of a diverging row, decoded when the row is opened.
import { bytesOf, inflate, jsonOf } from "./data.js";

/** Findings, measures, worst elements, ledger entry, reproducer …; null where the page holds none. */
export async function detailOf(row) {
  const buffer = await inflate(`detail-${row.number}`);
  return buffer && jsonOf(buffer);
}

/** The outputs of a row by name: {name, shape, origin, full, expected, actual, error, bound, ratio} over flat arrays. */
export async function outputsOf(row, layout) {
  const buffer = layout.length ? await inflate(`tensors-${row.number}`) : null;
  return new Map(buffer ? layout.map((entry) => [entry.name, unpack(buffer, entry)]) : []);
}

function unpack(buffer, { name, shape, kind, at, origin, full }) {
  const size = shape.reduce((product, length) => product * length, 1);
  const Type = kind === "<f8" ? Float64Array : Float32Array;
  const plane = (number) => {
    const start = at + number * size * Type.BYTES_PER_ELEMENT;
    return new Type(buffer.slice(start, start + size * Type.BYTES_PER_ELEMENT));
  };
  const [expected, actual, error, bound] = [0, 1, 2, 3].map(plane);
  return {
    name,
    shape,
    origin,
    full,
    expected,
    actual,
    error,
    bound,
    ratio: error.map((value, place) => ratio(value, bound[place])),
  };
}

/** Error over bound; infinite where an error meets a bound of 0 or is not finite. */
function ratio(error, bound) {
  if (error === 0) return 0;
  return Number.isFinite(error) && bound > 0 ? Math.abs(error) / bound : Infinity;
}

/** The Boolean field of blocked positions: {shape: [B, H, T, S], at(b, h, t, s)}, or null. */
export function blockedOf(detail) {
  if (!detail?.blocked) return null;
  const { shape, bits } = detail.blocked;
  const bytes = bytesOf(bits);
  const [batch, heads, targets, sources] = shape;
  const at = (sample, head, target, source) => {
    const place = (((sample % batch) * heads + (head % heads)) * targets + target) * sources + source;
    return (bytes[place >> 3] & (128 >> (place & 7))) !== 0;
  };
  const rowBlocked = (sample, target) => {
    for (let head = 0; head < heads; head += 1)
      for (let source = 0; source < sources; source += 1) if (!at(sample, head, target, source)) return false;
    return true;
  };
  return { shape, at, rowBlocked };
}
