// Ties the page to its address: every change of the address is drawn, everything done is written to the address.
import { byId } from "./dom.js";
import { closeCase, openNode, redraw, showCase } from "./casepage.js";
import { buildChips, markChips } from "./chips.js";
import { download } from "./download.js";
import { startKeys } from "./keys.js";
import { filter, matches, startOverview } from "./overview.js";
import { readState, settle } from "./state.js";

const TITLE = document.title;
let scrolled = 0;

function update() {
  const state = readState();
  const query = byId("query");
  if (query.value !== state.q) query.value = state.q;
  filter(state.q);
  markChips(state.q);
  const was = openNode();
  if (state.row !== null && was === null) scrolled = window.scrollY;
  byId("overview").hidden = state.row !== null;
  byId("case").hidden = state.row === null;
  document.documentElement.classList.toggle("reading", state.row !== null);
  if (state.row !== null) {
    showCase(state).catch((fault) => byId("case").append(`This row could not be decoded: ${fault.message}`));
    if (was !== state.row) {
      window.scrollTo(0, 0);
      byId("case").focus({ preventScroll: true });
    }
  } else if (was !== null) leave(was);
}

/** Back on the first screen: where one was, with the row that was open in focus. */
function leave(node) {
  closeCase();
  document.title = TITLE;
  window.scrollTo(0, scrolled);
  const link = [...document.querySelectorAll("#overview tr[data-row] a")].find(
    (one) => new URLSearchParams(one.getAttribute("href").slice(1)).get("row") === node,
  );
  link?.focus({ preventScroll: true });
}

function write(query) {
  settle({ q: query, row: null, output: null, view: null, element: null });
  update();
}

function later(action, wait) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, wait);
  };
}

document.querySelector(".finder").hidden = false;
byId("query").addEventListener("input", () => write(byId("query").value));
byId("finder").addEventListener("submit", (event) => event.preventDefault());
for (const button of document.querySelectorAll("[data-download]"))
  button.addEventListener("click", () => download(button.dataset.download, matches()));
document.querySelector("[data-help]").addEventListener("click", () => byId("help").showModal());
for (const link of document.querySelectorAll("[data-to]")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    if (openNode()) write(readState().q);
    byId(link.dataset.to).scrollIntoView();
    byId(link.dataset.to).focus({ preventScroll: true });
  });
}
window.addEventListener("hashchange", update);
window.addEventListener("resize", later(redraw, 150));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
buildChips(write);
startOverview();
startKeys();
update();
document.documentElement.dataset.ready = "true";
