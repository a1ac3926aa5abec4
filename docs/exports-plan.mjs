// Decides on which page each export and each type stands.
import { readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { declarationOf, declarationsOf, membersOf, withoutComments } from './declarations.mjs';

/** The folder of the pages of an entry point, below docs/reference/exports. */
export const folderOf = (entry) => entry.replace(/^saas-backend\//, '');

/** Longer types have a page of their own, although only one export uses them. */
const MAX_LINES_ON_OTHER_PAGE = { exported: 15, other: 30 };

/** Whose exports the types of another entry point refer to. */
const USED_BY = { 'saas-backend/react': 'saas-backend/client' };

const keyOf = ({ file, declared }) => `${file}#${declared}`;

/**
 * @param surfaces what `readPublicSurface` has found
 * @returns the items of each entry point; each has `page`, the path of its page below docs/reference/exports, and `guests`, the types that
 *   stand on it
 */
export function planPages(surfaces) {
  const exported = new Map();
  const entries = Object.entries(surfaces).map(([entry, items]) => {
    const own = items
      .toSorted((one, other) => (one.name < other.name ? -1 : 1))
      .map((item) => {
        const { kind, comment, text } = declarationOf(item);
        const members = membersOf(text);
        const inherited = members ? inheritedMembers(item.file, text, items) : [];
        return {
          ...{ ...item, entry, kind, comment, text, guests: [] },
          members: members && [...members, ...inherited],
        };
      });
    for (const item of own)
      if (item.isExported && !exported.has(keyOf(item))) exported.set(keyOf(item), item);
    return { entry, own };
  });
  const placed = new Map(exported);
  const plan = entries.map(({ entry, own }) => {
    // What another entry exports, or an earlier one refers to, is described there.
    const items = own.filter((item) => {
      if (item.isExported) return true;
      if (placed.has(keyOf(item))) return false;
      placed.set(keyOf(item), item);
      return true;
    });
    const names = new Map(own.map((item) => [item.declared, placed.get(keyOf(item)) ?? item]));
    for (const item of items) {
      names.set(item.name, item);
      names.set(item.declared, item);
    }
    return { entry, items, names };
  });
  for (const { entry, names } of plan) {
    const other = plan.find((one) => one.entry === USED_BY[entry]);
    for (const item of other?.items ?? []) if (!names.has(item.name)) names.set(item.name, item);
  }
  for (const { items, names } of plan) placeItems(items, names);
  return plan;
}

/** Members of the interfaces that a declaration extends and that have no page. */
function inheritedMembers(file, text, items) {
  const [, parents] = /^interface \w+(?:<[^{]*>)? extends ([^{]*)\{/.exec(text) ?? [];
  const names = parents?.match(/\b[A-Z]\w+(?=,|\s|$)/g) ?? [];
  return names
    .filter((name) => !items.some((item) => item.name === name || item.declared === name))
    .flatMap((name) => {
      const found = findDeclaration(file, name);
      if (!found) return [];
      const members = membersOf(found.text) ?? [];
      return [...members, ...inheritedMembers(found.file, found.text, items)];
    });
}

/** A declaration of a file, or one that it imports from another file of ours. */
function findDeclaration(file, name) {
  if (declarationsOf(file).has(name)) {
    const found = declarationOf({ declared: name, file });
    const [, maker] = /^type \w+ = ReturnType<typeof (\w+)>;/.exec(found.text) ?? [];
    const result = maker && /\): (\{\n[\s\S]*\});$/.exec(declarationOf({ declared: maker, file }).text)?.[1];
    return { ...found, file, ...(result && { text: `type ${name} = ${result};` }) };
  }
  const imports = readFileSync(file, 'utf8').matchAll(/^import (?:type )?\{([^}]*)\} from '(\.[^']*)';$/gm);
  for (const [, names, path] of imports) {
    const other = posix.join(posix.dirname(file), path.replace(/\.js$/, '.d.ts'));
    if (new RegExp(`\\b${name}\\b`).test(names)) return findDeclaration(other, name);
  }
  return undefined;
}

/** Whether functions are members of a type: it is an API. */
const hasFunctions = ({ members = [] }) => members.some(({ text }) => /^\w+\(|=> /m.test(text));

/** Sets `page` of each item, and `guests` of those that have a page. */
function placeItems(items, names) {
  for (const item of items) {
    item.names = names;
    item.uses = new Set(
      [...withoutComments(item.text).matchAll(/\b[A-Za-z_]\w+\b/g)]
        .map(([word]) => names.get(word))
        .filter((other) => other && other !== item),
    );
  }
  const hostOf = (item) => {
    const users = items.filter(({ uses }) => uses.has(item));
    const isValue = item.kind === 'function' || item.kind === 'const' || item.kind === 'class';
    const most = MAX_LINES_ON_OTHER_PAGE[item.isExported ? 'exported' : 'other'];
    const isLong = item.text.split('\n').length > most || (item.isExported && hasFunctions(item));
    return users.length === 1 && !isValue && !isLong ? users[0] : undefined;
  };
  const hosts = new Map(items.map((item) => [item, hostOf(item)]));
  for (const item of items) {
    let root = item;
    const seen = new Set();
    while (hosts.get(root) && !seen.has(root)) {
      seen.add(root);
      root = hosts.get(root);
    }
    item.root = seen.has(root) ? item : root;
    if (item.root !== item) item.root.guests.push(item);
  }
  const paths = new Map();
  for (const item of items) {
    item.page = posix.join(folderOf(item.entry), `${item.root.name}.md`);
    const known = paths.get(item.page.toLowerCase());
    // Some file systems do not distinguish them.
    if (known && known !== item.page) throw new Error(`${item.page} and ${known} are one file`);
    paths.set(item.page.toLowerCase(), item.page);
  }
}

/** The link to an item from a page, both below docs/reference/exports. */
export function linkTo(item, page) {
  const anchor = item.root === item ? '' : `#${item.name.toLowerCase()}`;
  if (item.page === page) return anchor || '#';
  return posix.relative(posix.dirname(page), item.page) + anchor;
}
