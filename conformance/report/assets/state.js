// What is looked at, in the address: #q=…&row=…&output=…&view=…&element=0,1,2

/** The state in the address: filter text, node id of the open row, output, view and element of its heat map. */
export function readState() {
  const words = new URLSearchParams(location.hash.slice(1));
  const element = (words.get("element") ?? "").split(",").filter(Boolean).map(Number);
  return {
    q: words.get("q") ?? "",
    row: words.get("row"),
    output: words.get("output"),
    view: words.get("view"),
    element: element.length && element.every(Number.isInteger) ? element : null,
  };
}

/** The address fragment of a state; fields that are empty are left out. */
export function fragment(state) {
  const words = new URLSearchParams();
  for (const name of ["q", "row", "output", "view", "element"]) {
    const value = state[name];
    if (value !== null && value !== undefined && String(value) !== "") words.set(name, String(value));
  }
  return `#${words}`;
}

/** Go to a state, as a step that Back undoes. */
export function go(state) {
  location.hash = fragment(state);
}

/** Change the address in place: no step, no event. */
export function settle(changes) {
  history.replaceState(null, "", fragment({ ...readState(), ...changes }));
}
