// Keys: / j k [ ] ? Enter Esc. None acts while text is being typed or with a modifier held.
import { byId } from "./dom.js";
import { neighbours, openNode } from "./casepage.js";
import { go, readState } from "./state.js";

function links() {
  return [...document.querySelectorAll("#overview tr[data-row] a")].filter((link) => link.checkVisibility());
}

function step(direction) {
  const all = links();
  const place = all.indexOf(document.activeElement);
  const next = all[place < 0 ? (direction > 0 ? 0 : all.length - 1) : place + direction];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function turn(row) {
  if (openNode() && row) go({ q: readState().q, row: row.node });
}

const ACTIONS = {
  "/": () => {
    if (openNode()) go({ q: readState().q });
    byId("query").focus();
    byId("query").select();
  },
  j: () => (openNode() ? turn(neighbours().after) : step(1)),
  k: () => (openNode() ? turn(neighbours().before) : step(-1)),
  "[": () => turn(neighbours().before),
  "]": () => turn(neighbours().after),
  "?": () => byId("help").showModal(),
  Escape: () => openNode() && go({ q: readState().q }),
};

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input, textarea, select");
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    if (typing && event.key !== "Escape") return;
    if (typing) return event.target.blur();
    const action = ACTIONS[event.key];
    if (!action) return undefined;
    event.preventDefault();
    return action();
  });
}
