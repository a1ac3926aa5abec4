/**
 * Checks every regular expression of the package with recheck: none may take more than linear time, because clients choose what
 * most of them read. `npm run check` runs it.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { check } from 'recheck';
import { parseSync, Visitor } from 'rolldown/utils';

const FOLDERS = ['bin', 'src', 'templates'];

/** Expressions that take some seconds to check, which a busy machine multiplies. */
const TIMEOUT_MS = 120_000;

/** Source and flags → where they are. Those without a quantifier take constant time. */
const expressions = new Map();
/** Those that code puts together, for which a person has to answer. */
const COMPOSED = {
  'src/core/http/schemas.ts': 1, // the pattern of a schema, which is checked where it is written
  'src/idp/provisioning/handles.ts': 1, // alternatives of one class of characters each
};
const composed = {};
/** Those with lookaround, which the exact checker cannot decide: its other one searches by chance, and its answer wavers. */
const LOOKAROUND = {
  'bin/commands/resource.ts': 1,
  'bin/env-file.ts': 1,
  'src/saas/billing/plans/options.ts': 1,
  'src/client/client.ts': 1,
  'src/core/config/options.ts': 1,
  'src/core/config/public-url.ts': 2,
  'src/core/http/schemas.ts': 2,
};
const lookaround = {};

for (const folder of FOLDERS) {
  for (const name of readdirSync(folder, { recursive: true })) {
    const file = join(folder, name);
    if (!/\.[jt]s$/.test(file)) continue;
    const { program, errors } = parseSync(file, readFileSync(file, 'utf8'));
    if (errors.length > 0) throw new Error(`${file} cannot be parsed: ${errors[0].message}`);
    const add = (source, flags) => {
      if (/[*+{]/.test(source)) expressions.set(`${source}/${flags}`, { file, source, flags });
    };
    const construct = ({ callee, arguments: [source, flags] }) => {
      if (callee.name !== 'RegExp') return;
      if (typeof source?.value === 'string') add(source.value, flags?.value ?? '');
      else composed[file] = (composed[file] ?? 0) + 1;
    };
    new Visitor({
      Literal({ regex }) {
        if (regex) add(regex.pattern, regex.flags);
      },
      NewExpression: construct,
      CallExpression: construct,
      Property({ key, value }) {
        // Of a JSON Schema.
        if (key.name !== 'pattern') return;
        if (typeof value.value === 'string') add(value.value, 'u');
        else if (value.type === 'TemplateLiteral')
          add(value.quasis.map(({ value: { cooked } }) => cooked).join('a'), 'u');
      },
    }).visit(program);
  }
}

const failures = [];
/** Each check is a process of its own. */
const waiting = expressions.values();
const checkAll = async () => {
  for (const { file, source, flags } of waiting) {
    const { status, complexity, attack, error } = await check(source, flags, {
      checker: 'automaton',
      timeout: TIMEOUT_MS,
    });
    if (status === 'safe') continue;
    if (error?.kind === 'unsupported') {
      lookaround[file] = (lookaround[file] ?? 0) + 1;
      continue;
    }
    const reason = status === 'unknown' ? error.kind : `${complexity.summary}, like ${attack.pattern}`;
    failures.push(`${file}: /${source}/${flags} ${reason}`);
  }
};
await Promise.all(Array.from({ length: availableParallelism() }, checkAll));
for (const [file, count] of Object.entries(composed)) {
  if (COMPOSED[file] !== count) failures.push(`${file}: a regular expression is put together by code`);
}
for (const [file, count] of Object.entries(lookaround)) {
  if (LOOKAROUND[file] !== count)
    failures.push(`${file}: a regular expression has lookaround; a person has to check it`);
}
for (const failure of failures) console.error(failure);
console.log(`${expressions.size} regular expressions, ${failures.length} failures`);
process.exitCode = failures.length > 0 ? 1 : 0;
