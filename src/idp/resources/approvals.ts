import { DisplayName, matchesSchema } from '../../core/http/schemas.js';
import type { ErrorDetail } from '../../core/kernel/errors.js';
import { type ApprovalType, FIELD_KINDS } from './store.js';

/** The kinds of actions that an API has approved by a person: types of authorization details (RFC 9396 §2). */

const MAX_TYPES = 20;
const MAX_FIELDS = 20;

/** RFC 9396 §2.2 gives these names a meaning of their own. */
const RESERVED = ['type', 'locations', 'actions', 'datatypes', 'identifier', 'privileges'];

const TYPE_NAME = /^[a-z][\w.:/-]{0,99}$/i;
const FIELD_NAME = /^[a-z]\w{0,39}$/i;

/** The fields that a sentence names in braces. */
export const placeholdersIn = (sentence: string): string[] =>
  [...sentence.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name);

/** What is wrong with the types of a resource, for its operator. */
export function approvalProblems(types: readonly ApprovalType[]): ErrorDetail[] {
  const isTwice = (names: readonly string[]) => new Set(names).size < names.length;
  const problems: [applies: boolean, path: string, message: string][] = [
    [types.length > MAX_TYPES, 'approvals', `must be at most ${MAX_TYPES} types`],
    [isTwice(types.map(({ name }) => name)), 'approvals', 'must contain each type once'],
    ...types.flatMap(({ name: type, sentence, fields }): [boolean, string, string][] => {
      const names = fields.map(({ name }) => name);
      const required = fields.flatMap(({ name, optional }) => (optional ? [] : [name]));
      return [
        [
          !TYPE_NAME.test(type),
          `type ${type}`,
          'must be 1 to 100 letters, digits and any of _.:/- and begin with a letter',
        ],
        [
          !matchesSchema(sentence, DisplayName) || /[{}]/.test(sentence.replaceAll(/\{\w+\}/g, '')),
          'sentence',
          'must be a sentence of at most 200 characters in which braces name fields, like Pay {amount} to {creditor}',
        ],
        ...placeholdersIn(sentence).map((name): [boolean, string, string] => [
          !required.includes(name),
          `sentence {${name}}`,
          'must be a field that is not optional',
        ]),
        [
          names.length > MAX_FIELDS || isTwice(names),
          'fields',
          `must be at most ${MAX_FIELDS} different fields`,
        ],
        ...fields.map(({ name, kind }): [boolean, string, string] => [
          !FIELD_NAME.test(name) ||
            name in {} ||
            RESERVED.includes(name.toLowerCase()) ||
            !FIELD_KINDS.includes(kind),
          `fields ${name}`,
          `must be a word of at most 40 letters, digits and underscores that RFC 9396 does not use itself, with = and one of ${FIELD_KINDS.join(', ')}`,
        ]),
      ];
    }),
  ];
  return problems.flatMap(([applies, path, message]) => (applies ? [{ path, message }] : []));
}

/** As it is written on the command line: `amount=number,reference=text?`. */
export const writtenFields = ({ fields }: Pick<ApprovalType, 'fields'>): string =>
  fields.map(({ name, kind, optional }) => `${name}=${kind}${optional ? '?' : ''}`).join(',');
