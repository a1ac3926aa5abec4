import { invalidFields } from '../../core/kernel/errors.js';

/** Which groups an application or an API gets in the claim `groups`, and under which names. */

/** No comma and no equals sign, with which lists of names are written, also in headers of proxies. */
const NAME = /^[a-z0-9][a-z0-9._:@+-]{0,63}$/;

export const GROUP_NAME = {
  accepts: 'a name of 1 to 64 lower-case letters, digits and . _ : @ + -, with a letter or digit first',
  pattern: NAME.source,
  examples: ['admins'],
};

/** What an application may call a group: printable ASCII without what separates or quotes names. */
const SHOWN_NAME = /^(?! )[ !#-+\-./0-:<-[\]-~]{1,64}(?<! )$/;

const MAX_SHOWN = 200;

/** Whether a text is the name that a group may have. */
export const isGroupName = (text: string): boolean => NAME.test(text);

/**
 * Reads a filter: `all`, `none`, or names separated by commas, each with `=` and the name that the application gets if that
 * differs.
 *
 * @param path of the field, for errors
 * @returns the same without spaces around names, and the groups that it names
 * @throws VALIDATION_ERROR
 */
export function parseFilter(text: string, path: string): { filter: string; named: string[] } {
  const trimmed = text.trim();
  if (trimmed === 'all' || trimmed === 'none') return { filter: trimmed, named: [] };
  const shown = trimmed.split(',').map((part) => {
    const [group = '', ...as] = part.split('=');
    return { group: group.trim(), as: as.length > 0 ? as.join('=').trim() : undefined };
  });
  const named = shown.map(({ group }) => group);
  const isValid = shown.every(
    ({ group, as }) => isGroupName(group) && (as === undefined || SHOWN_NAME.test(as)),
  );
  if (!isValid || named.length > MAX_SHOWN || new Set(named).size < named.length)
    throw invalidFields({
      path,
      message: `must be all, none or at most ${MAX_SHOWN} groups, each once, like admins,staff=Employees; what follows = is 1 to 64 characters of ASCII without commas, semicolons, quotation marks and backslashes`,
    });
  const filter = shown.map(({ group, as }) => (as === undefined ? group : `${group}=${as}`)).join();
  return { filter, named };
}
