// One output as heat maps, one for each leading index: [T, S] per sample and head, [T, Do] per sample.
import { el, numberText, ratioText } from "./dom.js";
import { hatch, inks, wantsDark } from "./colour.js";

const MARGIN = 20;
const TEXT_WIDTH = 40;
const TEXT_HEIGHT = 20;
const LEGIBLE_COLUMNS = 14;

/** Names of the axes of an output. */
export function axesOf({ name, shape }) {
  if (name === "attn_weights" && shape.length === 4) return ["sample", "head", "target", "source"];
  if (shape.length === 3) return ["sample", /\b(key|value)\b/.test(name) ? "source" : "target", "feature"];
  return shape.map((_, place) =>
    place < shape.length - 2 ? "axis" : place === shape.length - 1 ? "column" : "row",
  );
}

/** The panels of an output: leading index, height and width, and the place of their first element. */
export function panelsOf({ shape, origin }) {
  const [height, width] = shape.length === 1 ? [1, shape[0]] : shape.slice(-2);
  const leading = shape.slice(0, -2);
  const number = leading.reduce((product, length) => product * length, 1);
  return Array.from({ length: number }, (_, place) => {
    const index = [];
    for (let axis = leading.length - 1, rest = place; axis >= 0; axis -= 1) {
      index.unshift((rest % leading[axis]) + origin[axis]);
      rest = Math.floor(rest / leading[axis]);
    }
    return { index, height, width, start: place * height * width };
  });
}

/** Size of a cell in CSS pixels, and whether its value fits into it. */
function cellSize(width, available) {
  if (width <= LEGIBLE_COLUMNS && width * TEXT_WIDTH + MARGIN <= available)
    return { across: TEXT_WIDTH, down: TEXT_HEIGHT, text: true };
  const side = Math.max(Math.min(Math.floor((available - MARGIN) / width), 18), 2);
  return { across: side, down: side, text: false };
}

/** Text in a cell. */
function cellText(view, value) {
  if (view === "ratio") return ratioText(value);
  if (!Number.isFinite(value)) return numberText(value);
  return value !== 0 && Math.abs(value) < 0.01
    ? value.toExponential(0).replace("e+", "e")
    : value.toPrecision(2).slice(0, 5);
}

/**
 * A focusable canvas. `blockedAt(row, column)` says which cells are hatched; `choose(row, column)` is called when a cell
 * is pointed at or reached by the arrow keys. Returns {element, select(row, column), draw}.
 */
export function heatPanel({ output, view, scale, panel, blockedAt, available, caption, choose }) {
  const { height, width, start } = panel;
  const cell = cellSize(width, available);
  const canvas = el("canvas", {
    tabindex: 0,
    role: "application",
    "aria-roledescription": "heat map",
    "aria-label": `${caption}, ${height} by ${width}. Arrow keys move.`,
  });
  const across = width * cell.across + MARGIN;
  const down = height * cell.down + MARGIN;
  let chosen = null;
  const base = document.createElement("canvas");

  /** Paint every cell once; what is chosen is drawn over a copy. */
  function draw() {
    const density = window.devicePixelRatio || 1;
    for (const surface of [base, canvas]) {
      surface.width = across * density;
      surface.height = down * density;
    }
    canvas.style.width = `${across}px`;
    canvas.style.height = `${down}px`;
    const pen = base.getContext("2d");
    pen.scale(density, density);
    const colours = inks();
    drawTicks(pen, panel, cell, colours);
    pen.translate(MARGIN, MARGIN);
    const lines = hatch(pen, colours.muted);
    for (let row = 0; row < height; row += 1) {
      for (let column = 0; column < width; column += 1) drawCell(pen, row, column, colours, lines);
    }
    copy();
  }

  function copy() {
    const density = window.devicePixelRatio || 1;
    const pen = canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(base, 0, 0);
    pen.setTransform(density, 0, 0, density, MARGIN * density, MARGIN * density);
    if (chosen) drawRing(pen, chosen, cell, inks());
  }

  function drawCell(pen, row, column, colours, lines) {
    const value = output[view][start + row * width + column];
    const [x, y] = [column * cell.across, row * cell.down];
    const gap = cell.across > 5 ? 1 : 0;
    const finite = Number.isFinite(value);
    const colour = finite ? scale.colour(value) : colours.ink;
    pen.fillStyle = colour;
    pen.fillRect(x, y, cell.across - gap, cell.down - gap);
    if (blockedAt(row, column)) {
      pen.globalAlpha = cell.text ? 0.4 : 1;
      pen.fillStyle = lines;
      pen.fillRect(x, y, cell.across - gap, cell.down - gap);
      pen.globalAlpha = 1;
    }
    const ink = finite ? (wantsDark(colour) ? "#16191c" : "#ffffff") : colours.paper;
    if (cell.text) {
      pen.fillStyle = ink;
      pen.font = `${view === "ratio" && !(value <= 1) ? "bold " : ""}11px ui-monospace, "DejaVu Sans Mono", monospace`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillText(
        cellText(view, value),
        x + (cell.across - gap) / 2,
        y + (cell.down - gap) / 2 + 0.5,
        cell.across - 3,
      );
    } else if (cell.across >= 6 && (!finite || (view === "ratio" && value > 1)))
      drawMark(pen, x, y, cell.across - gap, ink, finite);
  }

  function select(row, column) {
    chosen = { row, column };
    copy();
  }

  function move(row, column) {
    select(Math.min(Math.max(row, 0), height - 1), Math.min(Math.max(column, 0), width - 1));
    choose(chosen.row, chosen.column);
  }

  function cellAt(event) {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - MARGIN) / cell.across);
    const row = Math.floor((event.clientY - box.top - MARGIN) / cell.down);
    return row >= 0 && column >= 0 && row < height && column < width ? [row, column] : null;
  }

  canvas.addEventListener("pointermove", (event) => {
    const place = cellAt(event);
    if (place && !(chosen?.row === place[0] && chosen?.column === place[1])) move(...place);
  });
  canvas.addEventListener("click", (event) => cellAt(event) && move(...cellAt(event)));
  canvas.addEventListener("focus", () => chosen || move(0, 0));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move((chosen?.row ?? 0) + step[0], (chosen?.column ?? 0) + step[1]);
  });

  draw();
  return { element: canvas, select, draw, clear: () => chosen && ((chosen = null), copy()) };
}

/** Numbers along both axes, as many as there is room for. */
function drawTicks(pen, { height, width }, cell, colours) {
  pen.fillStyle = colours.muted;
  pen.font = '10px ui-monospace, "DejaVu Sans Mono", monospace';
  pen.textBaseline = "middle";
  const every = (size, room) =>
    [1, 2, 5, 10, 20, 50, 100, 200, 500].find((step) => step * size >= room) ?? 1000;
  pen.textAlign = "center";
  for (let column = 0; column < width; column += every(cell.across, 22))
    pen.fillText(String(column), MARGIN + (column + 0.5) * cell.across, MARGIN / 2);
  pen.textAlign = "right";
  for (let row = 0; row < height; row += every(cell.down, 14))
    pen.fillText(String(row), MARGIN - 4, MARGIN + (row + 0.5) * cell.down);
}

/** A dot where the bound is broken, a cross where the value is not finite. */
function drawMark(pen, x, y, side, ink, finite) {
  pen.fillStyle = pen.strokeStyle = ink;
  pen.beginPath();
  if (finite) {
    pen.arc(x + side / 2, y + side / 2, Math.max(side / 7, 1), 0, 2 * Math.PI);
    pen.fill();
    return;
  }
  pen.moveTo(x + side * 0.25, y + side * 0.25);
  pen.lineTo(x + side * 0.75, y + side * 0.75);
  pen.moveTo(x + side * 0.75, y + side * 0.25);
  pen.lineTo(x + side * 0.25, y + side * 0.75);
  pen.stroke();
}

function drawRing(pen, { row, column }, cell, colours) {
  pen.strokeStyle = colours.paper;
  pen.lineWidth = 4;
  pen.strokeRect(column * cell.across - 0.5, row * cell.down - 0.5, cell.across, cell.down);
  pen.strokeStyle = colours.focus;
  pen.lineWidth = 2;
  pen.strokeRect(column * cell.across - 0.5, row * cell.down - 0.5, cell.across, cell.down);
}
