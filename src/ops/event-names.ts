/** Checks names of events: a listener for a name that is never emitted would wait for ever. */
export function createNameCheck(names: readonly string[]): (name: string) => void {
  const known = new Set(names);
  return (name) => {
    if (known.has(name)) return;
    const [nearest] = names
      .map((candidate) => ({ candidate, distance: editDistance(String(name), candidate) }))
      .sort((a, b) => a.distance - b.distance);
    const suggestion =
      nearest && nearest.distance <= MAX_DISTANCE ? ` Did you mean '${nearest.candidate}'?` : '';
    throw new TypeError(
      `There is no event '${String(name)}'.${suggestion} The events are: ${names.join(', ')}.`,
    );
  };
}

/** More edits than these are another word. */
const MAX_DISTANCE = 5;

/** The number of single-character insertions, deletions and replacements between two words (Levenshtein). */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (const [index, letter] of [...from].entries()) {
    const next = [index + 1];
    for (let column = 1; column <= to.length; column++) {
      const replaced = (row[column - 1] ?? 0) + (letter === to[column - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[column] ?? 0) + 1, (next[column - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}
