// Colours of heat maps, from the custom properties of the style sheet, so that they follow the system's light or dark.

const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

function rgb(name) {
  canvas.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

/** A function from −1 … 1 to a colour through the stops named, evenly spaced. */
function ramp(...names) {
  const stops = names.map(rgb);
  return (value) => {
    const place = ((Math.min(Math.max(value, -1), 1) + 1) / 2) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    const mixed = stops[low].map((from, channel) =>
      Math.round(from + (stops[low + 1][channel] - from) * (place - low)),
    );
    return `rgb(${mixed.join(" ")})`;
  };
}

export const DECADES = 3;

/** The scale of a view over an output: {colour(value), low, middle, high, labels}. */
export function scaleOf(view, output) {
  if (view === "ratio") {
    const colour = ramp("--heat-low", "--heat-low2", "--heat-middle", "--heat-high2", "--heat-high");
    return {
      colour: (value) => colour(value === 0 ? -1 : Math.log10(value) / DECADES),
      labels: ["≤ 10⁻³", "1", "≥ 10³"],
      ramp: colour,
    };
  }
  const values = view === "error" ? output.error : output.expected;
  const extent = Math.max(largest(values), view === "error" ? 0 : largest(output.actual)) || 1;
  const label = Number(extent.toPrecision(2)).toString();
  if (output.name === "attn_weights" && view !== "error") {
    const colour = ramp("--heat-middle", "--heat-weight");
    return { colour: (value) => colour((value / extent) * 2 - 1), labels: ["0", "", label], ramp: colour };
  }
  const colour = ramp("--heat-low", "--heat-middle", "--heat-high2");
  return { colour: (value) => colour(value / extent), labels: [`−${label}`, "0", label], ramp: colour };
}

function largest(values) {
  let most = 0;
  for (const value of values) if (Number.isFinite(value) && Math.abs(value) > most) most = Math.abs(value);
  return most;
}

/** Named colours for drawing. */
export function inks() {
  const style = getComputedStyle(document.documentElement);
  const ink = (name) => style.getPropertyValue(name).trim();
  return {
    ink: ink("--ink"),
    muted: ink("--muted"),
    paper: ink("--paper"),
    rule: ink("--rule"),
    focus: ink("--focus"),
    allowed: ink("--heat-weight"),
  };
}

/** Whether dark text is the more readable on a colour written as rgb(r g b). */
export function wantsDark(colour) {
  const [red, green, blue] = colour.match(/\d+/g).map(Number);
  return red * 0.299 + green * 0.587 + blue * 0.114 > 140;
}

/** A pattern of diagonal lines: blocked, without a colour of its own. */
export function hatch(context, colour) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  for (const shift of [-6, 0, 6]) {
    pen.beginPath();
    pen.moveTo(shift, 6);
    pen.lineTo(shift + 6, 0);
    pen.stroke();
  }
  return context.createPattern(tile, "repeat");
}
