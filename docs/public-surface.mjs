/**
 * The public surface of the package by entry point: what is exported, and every type of ours that is reachable from it, as the
 * compiler finds it. docs/reference/exports is made from it.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { API, ObjectFlags, SignatureKind, SymbolFlags } from 'typescript/unstable/sync';

const ENTRIES = {
  'saas-backend': 'index.d.ts',
  'saas-backend/client': 'client/index.d.ts',
  'saas-backend/react': 'react/index.d.ts',
  'saas-backend/server': 'server/index.d.ts',
  'saas-backend/resource-server': 'resource-server/index.d.ts',
};

/**
 * @typedef {object} PublicItem
 * @property {string} name as it is exported, or declared
 * @property {string} declared its name in `file`
 * @property {string} file the declarations of a module
 * @property {boolean} isExported or only reachable
 *
 * @param {string} root the folder of the package, after the build
 * @returns {{ surfaces: Record<string, PublicItem[]>, undocumented: string[] }} by entry point; what lacks documentation
 */
export function readPublicSurface(root) {
  const folder = mkdtempSync(join(tmpdir(), 'public-surface-'));
  const source = join(root, 'dist/src');
  const api = new API({});
  try {
    const configuration = join(folder, 'tsconfig.json');
    const compilerOptions = {
      ...{ target: 'es2023', module: 'nodenext', strict: true, exactOptionalPropertyTypes: true },
      ...{ skipLibCheck: true, noEmit: true, types: ['node'] },
      typeRoots: [join(root, 'node_modules/@types')],
    };
    const files = Object.values(ENTRIES).map((file) => join(source, file));
    writeFileSync(configuration, JSON.stringify({ compilerOptions, files }));
    const [project] = api.updateSnapshot({ openProjects: [configuration] }).getProjects();
    const surfaces = Object.fromEntries(
      Object.entries(ENTRIES).map(([entry, file]) => [
        entry,
        readSurface(project, join(source, file), source),
      ]),
    );
    // The hooks return types of the client.
    const isOfClient = ({ file }) => /\/client\//.test(file.slice(root.length));
    surfaces['saas-backend/react'] = surfaces['saas-backend/react'].filter((item) => !isOfClient(item));
    const undocumented = Object.entries(surfaces).flatMap(([entry, items]) =>
      items.flatMap(({ name, undocumentedParts }) =>
        undocumentedParts.map((part) => `${entry}: ${name}${part}`),
      ),
    );
    return { surfaces, undocumented: [...new Set(undocumented)].sort() };
  } finally {
    api.close();
    rmSync(folder, { recursive: true });
  }
}

/** What an entry exports, and the types of ours that are reachable from it. */
function readSurface({ checker, program }, entry, source) {
  // An interface of Fastify with further members is not ours.
  const isOurs = ({ declarations }) =>
    declarations.length > 0 && declarations.every(({ path }) => path.startsWith(join(source, '..')));
  const resolved = (symbol) => (symbol.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol);
  const items = new Map();
  const seen = new Set();

  const visitSignature = (signature) => {
    for (const parameter of signature.getParameters?.() ?? signature.parameters ?? [])
      visit(checker.getTypeOfSymbol(parameter));
    visit(checker.getReturnTypeOfSignature(signature));
  };

  /** Adds the types of ours in a type. */
  const visit = (type) => {
    if (!type || seen.has(type.id)) return;
    seen.add(type.id);
    const alias = type.getAliasSymbol?.();
    for (const argument of (alias && type.getAliasTypeArguments?.()) ?? []) visit(argument);
    if (alias && isOurs(alias)) return void add(alias);
    const symbol = type.getSymbol?.();
    if (type.isUnionType?.() || type.isIntersectionType?.())
      for (const part of type.getTypes() ?? []) visit(part);
    if (type.objectFlags & ObjectFlags.Reference)
      for (const argument of checker.getTypeArguments(type)) visit(argument);
    const isNamed = symbol && symbol.flags & (SymbolFlags.Interface | SymbolFlags.Class);
    if (isNamed) return void (isOurs(symbol) && add(symbol));
    if (!(type.objectFlags & ObjectFlags.Anonymous) && !(type.objectFlags & ObjectFlags.Mapped)) return;
    if (symbol && !isOurs(symbol)) return;
    for (const kind of [SignatureKind.Call, SignatureKind.Construct])
      for (const signature of checker.getSignaturesOfType(type, kind)) visitSignature(signature);
    for (const member of checker.getPropertiesOfType(type)) visit(checker.getTypeOfSymbol(member));
  };

  const docOf = (symbol) =>
    checker.getDocumentationCommentOfSymbol(symbol) ||
    checker
      .getJsDocTagsOfSymbol(symbol)
      .map(({ name }) => name)
      .join();

  /** Visits the members of a type, and returns those of ours that have no comment. */
  const undocumentedMembersOf = (type) =>
    checker
      .getPropertiesOfType(type)
      .filter((member) => member.declarations.length === 0 || isOurs(member))
      .filter((member) => {
        visit(checker.getTypeOfSymbol(member));
        return docOf(member) === '';
      })
      .map(({ name }) => `.${name}`);

  const add = (symbol, exportedAs) => {
    const known = items.get(symbol.id);
    if (known) return void (exportedAs && Object.assign(known, { isExported: true }));
    const [{ path }] = symbol.declarations;
    const item = {
      ...{ name: exportedAs ?? symbol.name, declared: symbol.name, file: path },
      ...{ isExported: exportedAs !== undefined, undocumentedParts: docOf(symbol) === '' ? [''] : [] },
    };
    items.set(symbol.id, item);
    if (symbol.flags & (SymbolFlags.Interface | SymbolFlags.Class))
      item.undocumentedParts.push(...undocumentedMembersOf(checker.getDeclaredTypeOfSymbol(symbol)));
    else if (symbol.flags & SymbolFlags.TypeAlias) visitWithin(checker.getDeclaredTypeOfSymbol(symbol));
    if (symbol.flags & (SymbolFlags.Variable | SymbolFlags.Function) && exportedAs)
      visit(checker.getTypeOfSymbol(symbol));
    // The fields of bodies and answers are described in docs/openapi.
    if (path.includes('/generated/client/') && !symbol.name.endsWith('Methods')) item.undocumentedParts = [];
  };

  /** What an alias stands for: its own symbol would end the search. */
  const visitWithin = (type) => {
    if (type.isUnionType?.() || type.isIntersectionType?.())
      for (const part of type.getTypes() ?? []) visit(part);
    else
      for (const member of checker.getPropertiesOfType(type).filter(isOurs))
        visit(checker.getTypeOfSymbol(member));
  };

  const module = checker.getSymbolAtLocation(program.getSourceFile(entry));
  for (const exported of checker.getExportsOfModule(module)) add(resolved(exported), exported.name);
  return [...items.values()];
}
