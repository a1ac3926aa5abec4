/** Asks on behalf of all who want to know the same at once. */
export type Coalesce<T> = (key: string, ask: () => Promise<T>) => Promise<T>;

/** One asking, and the one that begins when it ends, where somebody waits for that. */
interface Round<T> {
  answer: Promise<T>;
  next?: Promise<T>;
}

/**
 * Of each key one asking is under way at most, and one more waits for its end. Whoever comes meanwhile shares the one that
 * waits: what is under way may have been answered before they came, and nobody is told what is older than their question.
 */
export function createCoalescer<T>(): Coalesce<T> {
  const underWay = new Map<string, Round<T>>();

  const begin: Coalesce<T> = (key, ask) => {
    // One that throws at once fails like any other, or its key would be taken for ever.
    const round: Round<T> = { answer: (async () => ask())() };
    underWay.set(key, round);
    const end = () => {
      if (!round.next) underWay.delete(key);
    };
    round.answer.then(end, end);
    return round.answer;
  };

  return (key, ask) => {
    const round = underWay.get(key);
    if (!round) return begin(key, ask);
    const beginNext = () => begin(key, ask);
    round.next ??= round.answer.then(beginNext, beginNext);
    return round.next;
  };
}
