/**
 * Reads the text of a `.env` file. Node's own reader drops the variable after a line of spaces, and others ignore what they do
 * not understand: here, every line is a variable, a comment or empty.
 */

const NAME = /[^\S\n]*(?:export[^\S\n]+)?([A-Za-z_][\w.-]*)[^\S\n]*=[^\S\n]*/y;
const EMPTY = /[^\S\n]*(?:#[^\n]*)?(?:\n|$)/y;
/** The values in quotes may have several lines. */
const QUOTED = { '"': /"([^"]*)"/y, "'": /'([^']*)'/y, '`': /`([^`]*)`/y };
/** A colour begins with #. */
const PLAIN = /(?:(?<==)#)?[^\n#]*/y;

/** @throws EnvFileError for a line that is not understood */
export function parseEnvFile(source: string): Record<string, string> {
  const text = source.replace(/\r\n?/g, '\n');
  const variables: Record<string, string> = {};
  let at = 0;
  /** The match of an expression at this place, which is behind it afterwards. */
  const take = (expression: RegExp): RegExpExecArray | null => {
    expression.lastIndex = at;
    const match = expression.exec(text);
    if (match) at += match[0].length;
    return match;
  };
  const refuse = (reason: string) => new EnvFileError(text.slice(0, at).split('\n').length, reason);

  while (at < text.length) {
    if (take(EMPTY)) continue;
    const [, name] = take(NAME) ?? [];
    if (name === undefined) throw refuse('is not NAME=value. Begin a comment with #.');
    const quote = text[at] as keyof typeof QUOTED;
    const isQuoted = Object.hasOwn(QUOTED, quote);
    const [whole = '', inner = whole] = take(isQuoted ? QUOTED[quote] : PLAIN) ?? [];
    if (isQuoted && whole === '')
      throw refuse(`begins a value of ${name} with ${quote} and does not end it.`);
    // A password would silently lose its end.
    if (!isQuoted && text[at] === '#' && !/\s/.test(text[at - 1] ?? ''))
      throw refuse(
        `has a # in the value of ${name}. Put the value in quotes, or a space before the comment.`,
      );
    if (!take(EMPTY)) throw refuse(`continues after the value of ${name} in quotes.`);
    variables[name] = isQuoted ? inner : inner.trim();
    if (quote === '"') variables[name] = inner.replaceAll('\\n', '\n');
  }
  return variables;
}

/** A line that is not understood. The message never contains a value. */
export class EnvFileError extends Error {
  constructor(line: number, reason: string) {
    super(`line ${line} of .env ${reason}`);
  }
}
