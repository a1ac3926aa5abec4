import { toMinute } from './lists.js';

/** A line of the description of something: a text or a time. */
export interface Fact {
  label: string;
  text?: string;
  /** ISO 8601 */
  time?: string;
  /** Whether the text is an identifier. */
  isCode?: boolean;
}

/** The view of the facts in `console-detail.html`, where a missing value must not be taken from the page. */
export function factsOf(facts: readonly Fact[]) {
  return facts.map(({ label, text, time, isCode = false }) => ({
    label,
    text: time === undefined ? (text ?? '') : toMinute(time),
    time: time ?? false,
    isCode,
  }));
}
