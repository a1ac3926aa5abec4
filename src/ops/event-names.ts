import { suggestion } from '../kernel/text.js';

/** More edits than these are another word. */
const MAX_DISTANCE = 5;

/** Checks names of events: a listener for a name that is never emitted would wait for ever. */
export function createNameCheck(names: readonly string[]): (name: string) => void {
  const known = new Set(names);
  return (name) => {
    if (known.has(name)) return;
    const meant = suggestion(String(name), names, '', MAX_DISTANCE);
    throw new TypeError(`There is no event '${String(name)}'.${meant} The events are: ${names.join(', ')}.`);
  };
}
