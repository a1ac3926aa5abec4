/** The words of a text, for lists of values without spaces. */
export const words = (text: string): string[] => text.trim().split(/\s+/);
