/** Whether it applies, to which variable, what is unwise about that, and what would be wiser. Never holds a secret. */
export type Advice = [applies: boolean, about: string, message: string, remedy: string];

/** The advice that applies. */
export function applicable(advice: readonly Advice[]): { about: string; message: string; remedy: string }[] {
  return advice.flatMap(([applies, about, message, remedy]) => (applies ? [{ about, message, remedy }] : []));
}
