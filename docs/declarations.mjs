// Reads the declarations (`.d.ts`) that the compiler has written: names, comments, members.
import { readFileSync } from 'node:fs';

/**
 * The declarations of a compiled file by name. A type can have the name of the schema that it describes.
 *
 * @returns {Map<string, { kind: string, comment: string[], lines: string[] }[]>}
 */
export function declarationsOf(file) {
  const found = new Map();
  let comment = [];
  let current;
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    const [, kind, name] =
      /^(?:export )?(?:declare )?(?:abstract )?(interface|type|class|function|const) (\w+)/.exec(line) ?? [];
    if (line.startsWith('/**')) {
      comment = [line];
      current = undefined;
    } else if (name) {
      current = { kind, comment, lines: [line] };
      found.set(name, [...(found.get(name) ?? []), current]);
      comment = [];
    } else if (/^(import|export|declare) /.test(line)) current = undefined;
    else if (current) current.lines.push(line);
    else comment.push(line);
  }
  return found;
}

/** The text of a comment, with its lines. */
export const linesOfComment = (lines) =>
  lines
    .map((line) => line.replace(/^\s*(?:\/\*\*|\*(?!\/))? ?/, '').replace(/\s*\*\/\s*$/, ''))
    .join('\n')
    .trim();

/** The text of a comment on one line. */
export const textOf = (lines) => linesOfComment(lines).replaceAll('\n', ' ').trim();

/** What a name stands for: its types, or its value if it has none. */
export function declarationOf({ declared, file }) {
  const own = declarationsOf(file).get(declared);
  if (!own) throw new Error(`${file} does not declare ${declared}`);
  const types = own.filter(({ kind }) => kind !== 'const');
  const [first] = types.length > 0 ? types : own;
  const parts = types.length > 0 ? types : own;
  const lines = parts.flatMap((part) => part.lines);
  const text = lines
    .join('\n')
    .trim()
    .replaceAll(/^export (?:declare )?/gm, '')
    .replaceAll(/\bimport\("[^"]*"\)\./g, '');
  return { kind: first.kind, comment: linesOfComment(first.comment), text };
}

/** Without comments. */
export const withoutComments = (text) => text.replaceAll(/^ *\/\*\*[\s\S]*?\*\/\n/gm, '');

/** On one line, without comments. */
export const flat = (text) =>
  withoutComments(text)
    .replaceAll(/\s*\n\s*/g, ' ')
    .replaceAll(/; }/g, ' }')
    .trim();

/**
 * The members of an interface, a class or an object type.
 *
 * @returns {{ comment: string, name: string, text: string }[] | undefined} nothing for another type
 */
export function membersOf(text) {
  const [, head] = /^((?:interface|(?:abstract )?class|type \w+(?:<[^=]*>)? =) ?[^{]*?)\{\n/.exec(text) ?? [];
  if (head === undefined || !/\n\};?$/.test(text)) return undefined;
  const members = [];
  let comment = [];
  let isInComment = false;
  for (const line of text.slice(head.length).split('\n').slice(1, -1)) {
    const isStart = /^ {4}[^\s}*/)\]|&>]/.test(line);
    if (/^ {4}\/\*\*/.test(line)) {
      comment = [line];
      isInComment = !line.includes('*/');
    } else if (isInComment) {
      comment.push(line);
      isInComment = !line.includes('*/');
    } else if (isStart) {
      members.push({ comment: linesOfComment(comment), lines: [line.slice(4)] });
      comment = [];
    } else members.at(-1)?.lines.push(line.slice(4));
  }
  return members
    .map(({ comment: about, lines }) => ({ comment: about, text: lines.join('\n').replace(/;$/, '') }))
    .filter((member) => !/^(?:private |#)/.test(member.text))
    .map((member) => ({ ...member, name: nameOf(member.text) }));
}

/** `readonly name?: …`, `name(…): …`, or `(…): …` for what is called. */
const nameOf = (text) =>
  /^(?:readonly |static |get |set )*('[^']+'|[\w$]+)/.exec(text)?.[1].replaceAll("'", '') ?? 'call';
