// The heat maps of a case: tabs for outputs and views, legend, panels, and the line that reads a cell.
import { briefText, el, numberText, ratioText, say, shortened } from "./dom.js";
import { scaleOf } from "./colour.js";
import { axesOf, heatPanel, panelsOf } from "./heatmap.js";
import { section } from "./panels.js";
import { sidesOf } from "./sides.js";
import { readState, settle } from "./state.js";

const VIEWS = ["ratio", "expected", "actual", "error"];
const PANELS = 32;

/** The section, and `show(state)` that turns to an output, a view and an element. */
export function heatSection(row, outputs, blocked) {
  const names = [...outputs.keys()];
  const sides = sidesOf(row);
  const titles = { ...sides, ratio: "error / bound", error: "signed error" };
  const tabs = el("div", { class: "tabs", role: "group", "aria-label": "Output" });
  const views = el("div", { class: "tabs", role: "group", "aria-label": "View" });
  const readout = el("p", { class: "readout" }, "Point at a cell, or focus a map and use the arrow keys.");
  const legend = el("div", { class: "heat-legend" });
  const stage = el("div", { class: "stage" });
  const element = section(
    "Where it differs",
    sides.note ? el("p", { class: "lead" }, sides.note) : null,
    el("div", { class: "tab-rows" }, tabs, views),
    legend,
    readout,
    stage,
  );
  let now = { output: names[0], view: "ratio", element: null };
  let maps = [];
  let pending;

  function show(state, focus = false) {
    const output = outputs.has(state.output) ? state.output : names[0];
    const view = VIEWS.includes(state.view) ? state.view : "ratio";
    now = { output, view, element: fits(outputs.get(output), state.element) ? state.element : null };
    render();
    if (now.element) select(now.element, focus);
  }

  /** Write the state to the address a little later: browsers refuse more than a few such writes a second. */
  function remember(state) {
    clearTimeout(pending);
    pending = setTimeout(() => readState().row === row.node && settle(state), 150);
  }

  function turn(changes) {
    const kept = changes.output && changes.output !== now.output ? null : now.element;
    const next = { ...now, element: kept, ...changes };
    clearTimeout(pending);
    settle(next);
    show(next);
  }

  function render() {
    const output = outputs.get(now.output);
    const scale = scaleOf(now.view, output);
    tabs.replaceChildren(
      ...names.map((name) => tab(name, name === now.output, () => turn({ output: name }))),
    );
    const weights =
      outputs.has("attn_weights") && now.output !== "attn_weights"
        ? [tab("attention weights", false, () => turn({ output: "attn_weights", view: "actual" }))]
        : [];
    views.replaceChildren(
      ...VIEWS.map((name) => tab(titles[name], name === now.view, () => turn({ view: name }))),
      ...weights,
    );
    legend.replaceChildren(...legendOf(now.view, scale, output, sides));
    const axes = axesOf(output);
    const all = panelsOf(output);
    const wanted = now.element
      ? all.findIndex((panel) => panel.index.every((place, axis) => place === now.element[axis]))
      : -1;
    const some = all.filter((_, place) => place < PANELS || place === wanted);
    const available = Math.max(stage.clientWidth || 900, 200);
    maps = some.map((panel) => mapOf(output, panel, axes, scale, available));
    stage.replaceChildren(...maps.map(({ figure }) => figure));
    if (some.length < all.length)
      stage.append(el("p", { class: "lead" }, `${all.length - some.length} further maps are not drawn.`));
    if (output.full.some((length, axis) => length !== output.shape[axis])) {
      const whole = `This is the part with the worst element; the whole output is ${output.full.join(" × ")}.`;
      stage.append(el("p", { class: "lead" }, whole));
    }
  }

  function mapOf(output, panel, axes, scale, available) {
    const title = panel.index.map((place, axis) => `${axes[axis]} ${place}`).join(", ");
    const map = heatPanel({
      output,
      scale,
      panel,
      available,
      view: now.view,
      caption: `${output.name} ${title}`,
      blockedAt: blockedIn(output, panel, axes, blocked),
      choose: (at, column) => chosen(output, panel, at, column, map),
    });
    const down = output.shape.length > 1 ? `${axes.at(-2)} ↓  ` : "";
    const figure = el(
      "figure",
      {},
      el("figcaption", {}, title ? el("b", {}, title) : null, ` ${down}${axes.at(-1)} →`),
      map.element,
    );
    return { ...map, figure, panel };
  }

  function chosen(output, panel, at, column, map) {
    for (const other of maps) if (other.element !== map.element) other.clear();
    const index = output.shape.length === 1 ? [column] : [...panel.index, at, column];
    now.element = index;
    remember({ output: output.name, view: now.view, element: index });
    readout.replaceChildren(
      ...reading(
        output,
        panel.start + at * panel.width + column,
        index,
        row,
        blockedIn(output, panel, axesOf(output), blocked)(at, column),
      ),
    );
    say(readout.textContent);
  }

  function select(index, focus) {
    const map = maps.find(({ panel }) => panel.index.every((place, axis) => place === index[axis]));
    const [at, column] = index.length === 1 ? [0, index[0]] : index.slice(-2);
    map.select(at, column);
    if (focus) {
      map.element.scrollIntoView({ block: "center" });
      map.element.focus({ preventScroll: true });
    }
    chosen(outputs.get(now.output), map.panel, at, column, map);
  }

  return {
    element,
    show,
    redraw: () => {
      render();
      if (now.element) select(now.element, false);
    },
  };
}

const tab = (text, pressed, onclick) =>
  el("button", { type: "button", "aria-pressed": String(pressed), onclick }, shortened(text));

const fits = (output, element) =>
  element !== null &&
  element?.length === output.shape.length &&
  element.every(
    (place, axis) => place >= output.origin[axis] && place < output.origin[axis] + output.shape[axis],
  );

/** Which cells of a panel are hatched: blocked positions of weights, fully blocked rows of what has a target axis. */
function blockedIn(output, panel, axes, blocked) {
  if (!blocked) return () => false;
  const [, , targets, sources] = blocked.shape;
  if (output.name === "attn_weights" && axes.length === 4)
    return (at, column) =>
      at < targets && column < sources && blocked.at(panel.index[0], panel.index[1], at, column);
  if (axes.length === 3 && axes[1] === "target")
    return (at) => at < targets && blocked.rowBlocked(panel.index[0], at);
  return () => false;
}

function reading(output, place, index, row, shut) {
  const sides = sidesOf(row);
  const digits = row.case.facts.dtype === "float64" ? 17 : 9;
  const pair = (name, value) => el("span", {}, el("i", {}, name), ` ${value} `);
  return [
    el("b", {}, shortened(`${output.name}[${index.join(", ")}]`)),
    " ",
    pair(sides.expected, numberText(output.expected[place], digits)),
    pair(sides.actual, numberText(output.actual[place], digits)),
    pair("error", briefText(output.error[place])),
    pair("bound", briefText(output.bound[place])),
    pair("ratio", ratioText(output.ratio[place])),
    shut ? el("span", {}, "blocked") : "",
  ];
}

function legendOf(view, scale, output, sides) {
  const steps = Array.from({ length: 41 }, (_, step) => {
    const piece = el("i");
    piece.style.background = scale.ramp(step / 20 - 1);
    return piece;
  });
  const [low, middle, high] = scale.labels;
  const title =
    view === "ratio"
      ? "error / bound, logarithmic; 1 is the bound"
      : view === "error"
        ? `${sides.actual} − ${sides.expected}`
        : `${sides[view]} ${output.name}`;
  const key = (className, text) =>
    el("span", { class: "key" }, el("span", { class: `swatch ${className}` }), text);
  return [
    el(
      "div",
      { class: "bar" },
      el("div", { class: "ramp", "aria-hidden": "true" }, ...steps),
      el("div", { class: "ticks" }, el("span", {}, low), el("span", {}, middle), el("span", {}, high)),
    ),
    el("span", {}, title),
    key("infinite", view === "ratio" ? "∞ or NaN" : "not finite"),
    key("hatched", "blocked"),
  ];
}
