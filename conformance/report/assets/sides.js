// What the two values of an element are: the reference's and the subject's, or two answers of the subject.
import { fact } from "./data.js";

const PLAIN = { expected: "expected", actual: "actual", agrees: "with the reference", note: null };
const CONSERVED = {
  expected: "conserved",
  actual: "actual",
  agrees: "keeps the relation",
  note: "What is judged is a quantity that the answer must keep, not the answer itself.",
};
const TWO_CALLS = {
  expected: "other call",
  actual: "this call",
  agrees: "keeps the relation",
  note:
    "Two answers of the subject are compared with each other, not with the reference; " +
    "the bound is the sum of both calls’ bounds.",
};

/** Names for `expected` and `actual` of a row, what an agreeing row does, and a sentence about them or null. */
export function sidesOf(row) {
  const relation = fact(row, "relation");
  if (relation === "" || relation === "none") return PLAIN;
  return relation === "conservation" ? CONSERVED : TWO_CALLS;
}
