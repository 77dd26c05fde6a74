// Small helpers. Text of a run enters the page only through textContent and attributes, never as markup.

/** An element with attributes and children; children that are null are left out. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

const LONG = 400;
const SHORT = 200;

/** Text of unknown direction, kept from reordering what stands around it; long text in a box that scrolls. */
export function isolated(text, className) {
  const long = String(text).length > LONG;
  const names = [className, long ? "long" : null].filter(Boolean).join(" ");
  return el("bdi", { class: names || null, tabindex: long ? 0 : null }, visibleText(String(text)));
}

/** The same for links and cells, where long text is cut. */
export function shortened(text, length = SHORT) {
  const whole = String(text);
  return el("bdi", {}, visibleText(whole.length > length ? `${whole.slice(0, length - 1)}…` : whole));
}

/** Control characters as their pictures, as the server side writes them. */
export function visibleText(text) {
  const picture = (found) => {
    const code = found.codePointAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : `\\x${code.toString(16)}`;
  };
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, picture);
}

export const byId = (id) => document.getElementById(id);
export const count = (number) => number.toLocaleString("en-US");
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** An error/bound ratio in at most six characters, by the rule of the Python side. */
export function ratioText(ratio) {
  if (ratio == null) return "—";
  if (!Number.isFinite(ratio)) return "∞";
  if (ratio === 0) return "0";
  if (ratio > 0.995 && ratio < 1.005 && ratio !== 1) return ratio > 1 ? ">1.00" : "<1.00";
  if (ratio >= 0.01 && ratio < 9.995) return ratio.toFixed(2);
  if (ratio >= 9.995 && ratio < 9999.5) return ratio.toFixed(0);
  return ratio.toExponential(1).replace(".0e", "e").replace("e+", "e");
}

/** A number with the digits given, with NaN and infinities as people write them. */
export function numberText(value, digits = 9) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  return String(Number(value.toPrecision(digits)));
}

/** A magnitude (error, bound) with three digits, small and large ones with an exponent. */
export function briefText(value) {
  const size = Math.abs(value);
  if (!Number.isFinite(value) || value === 0) return numberText(value);
  return size < 1e-4 || size >= 1000
    ? String(value.toExponential(2)).replace(/\.?0*e\+?/, "e")
    : String(Number(value.toPrecision(3)));
}

/** Says something to a screen reader. */
export function say(text) {
  byId("said").textContent = text;
}
