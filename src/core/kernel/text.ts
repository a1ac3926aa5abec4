/** The text of a file without the byte order mark that some editors put at its beginning. */
export const withoutByteOrderMark = (text: string): string => text.replace(/^\ufeff/, '');

/**
 * A code as typed or copied, without separators: apps and mails show codes in groups, phones turn hyphens into dashes, copies bring
 * invisible characters, and input methods have characters of full width.
 */
export const typedCode = (code: string): string => code.normalize('NFKC').replaceAll(/[\s\p{P}\p{Cf}]/gu, '');

/** The length of a text in code points, as in JSON Schema. */
export const charactersIn = (text: string): number => [...text].length;

/**
 * Suggests the most similar known word, as a sentence to append; an empty string if none is similar.
 *
 * @param limit maximum edit distance
 */
export function suggestion(
  word: string,
  known: readonly string[],
  prefix = '',
  limit = Math.max(1, Math.floor(word.length / 3)),
): string {
  const [best] = known
    .map((candidate) => ({ candidate, distance: distanceBetween(word, candidate) }))
    .filter(({ distance }) => distance <= limit)
    .sort((left, right) => left.distance - right.distance);
  return best ? ` Did you mean '${prefix}${best.candidate}'?` : '';
}

/** Edit distance with transpositions of adjacent letters (optimal string alignment). */
function distanceBetween(left: string, right: string): number {
  const rows: number[][] = [Array.from({ length: right.length + 1 }, (_, column) => column)];
  const at = (row: number, column: number): number => rows[row]?.[column] ?? Number.POSITIVE_INFINITY;
  for (let row = 1; row <= left.length; row++) {
    rows[row] = [row];
    for (let column = 1; column <= right.length; column++) {
      const isSame = left[row - 1] === right[column - 1];
      const isSwapped = left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1];
      rows[row]?.push(
        Math.min(
          at(row - 1, column) + 1,
          at(row, column - 1) + 1,
          at(row - 1, column - 1) + (isSame ? 0 : 1),
          isSwapped ? at(row - 2, column - 2) + 1 : Number.POSITIVE_INFINITY,
        ),
      );
    }
  }
  return at(left.length, right.length);
}
