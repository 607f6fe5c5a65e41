// What the reader has chosen; views are told of what concerns them.
import { meta } from "./data.js";

/** @typedef {{state: number, sample: number, j: number, K: number, brush: Set<number> | null, order: string, theme: string}} Choice */

export const choice = /** @type {Choice} */ ({
  state: meta.states.length - 1, sample: 0, j: 0, K: Math.min(10, meta.states[0].pairs), brush: null,
  order: meta.labeled && meta.classes.length ? "class" : "clusters", theme: "light",
});
const listeners = /** @type {{keys: (keyof Choice)[], call: () => unknown}[]} */ ([]);

/** @param {(keyof Choice)[]} keys @param {() => unknown} call */
export function on(keys, call) { listeners.push({ keys, call }); }

/** @param {Partial<Choice>} change */
export function choose(change) {
  const changed = /** @type {(keyof Choice)[]} */ (Object.keys(change)).filter((key) => choice[key] !== change[key]);
  Object.assign(choice, change);
  if (changed.length) for (const { keys, call } of listeners) if (keys.some((key) => changed.includes(key))) call();
}
export const state = () => meta.states[choice.state];
