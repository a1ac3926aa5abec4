import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { ConfigurationError, formatProblem } from '../../../src/core/config/configuration-error.js';
import { describeOptions, type OptionRow } from '../../../src/core/config/option-rows.js';
import type { Resolved } from '../../../src/core/config/options.js';
import type { Finding } from '../../../src/core/server/doctor.js';
import { idpServerSchema, resolveServer, saasServerSchema } from '../../../src/core/server/options.js';
import { idpSchema, resolveIdp } from '../../../src/idp/options.js';
import { resolveSaas, saasSchema } from '../../../src/saas/options.js';
import { compiled, startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { CANARY, type Cases, IDP_PRODUCTION, idpCases, SAAS_PRODUCTION, saasCases } from './option-cases.js';

/** Every variable of both programs: its default, its valid and invalid values, and where its secret may appear. */

type Environment = Record<string, string>;

/** The result of one environment. */
interface Outcome {
  values: Record<string, unknown>;
  problems: readonly string[];
  warnings: readonly string[];
}

interface Product {
  rows: OptionRow[];
  cases(folder: string): Record<string, Cases>;
  production: Environment;
  resolve(env: Environment, given?: object): Outcome;
  script: string;
  args: string[];
}

const outcomeOf = (...parts: (() => Resolved<unknown>)[]): Outcome => {
  const outcome: Outcome = { values: {}, problems: [], warnings: [] };
  for (const part of parts) {
    try {
      const { values, warnings } = part();
      Object.assign(outcome.values, values);
      outcome.warnings = [...outcome.warnings, ...warnings.map(formatProblem)];
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error;
      outcome.problems = [...outcome.problems, ...error.problems];
    }
  }
  return outcome;
};

const serverNames = Object.keys(saasServerSchema.properties);
const pick = (given: object, own: boolean) =>
  Object.fromEntries(Object.entries(given).filter(([name]) => serverNames.includes(name) === own));

const products: Record<string, Product> = {
  'saas-backend': {
    rows: [saasSchema, saasServerSchema].flatMap(describeOptions),
    cases: saasCases,
    production: SAAS_PRODUCTION,
    resolve: (env, given = {}) =>
      outcomeOf(
        () => resolveSaas({ env, ...pick(given, false) }, false).config,
        () => resolveServer('saas-backend', saasServerSchema, pick(given, true), { env }),
      ),
    script: compiled('bin/saas-backend.js'),
    args: [],
  },
  idp: {
    rows: [idpSchema, idpServerSchema].flatMap(describeOptions),
    cases: idpCases,
    production: IDP_PRODUCTION,
    resolve: (env, given = {}) =>
      outcomeOf(
        () => resolveIdp({ env, ...pick(given, false) }, false).config,
        () => resolveServer('idp', idpServerSchema, pick(given, true), { env }),
      ),
    script: compiled('bin/idp.js'),
    args: ['serve'],
  },
};

/** Production, and development with the same variables, so that only NODE_ENV differs. */
function environments({ production }: Product): [production: Environment, development: Environment] {
  const { NODE_ENV: _, ...rest } = production;
  return [production, { ...rest, NODE_ENV: '' }];
}

/** Expects exactly one message, about this variable, that does not contain its value. */
function isAbout(t: Test, sentences: readonly string[], variable: string, text: string): void {
  const name = `${variable}=${JSON.stringify(text).slice(0, 60)}`;
  t.equal(sentences.length, 1, name);
  t.match(sentences[0], new RegExp(`^${variable}(_FILE)?\\b`), name);
  t.notMatch(sentences[0], CANARY, name);
}

for (const [program, product] of Object.entries(products)) {
  const { rows, production, resolve } = product;

  t.test(`${program}: every variable has test cases`, async (t) => {
    const cases = product.cases(temporaryFolder(t));
    t.same(Object.keys(cases).sort(), rows.map(({ env }) => env).sort());
    for (const { env, secret } of rows) {
      t.ok(Object.keys(cases[env]?.valid ?? {}).length > 0, `${env} takes something`);
      const refused = [...(cases[env]?.invalid ?? []), ...(cases[env]?.unsafe ?? [])];
      // A host name can be anything that the system resolves.
      if (!/HOST$/.test(env)) t.ok(refused.length > 0, `${env} refuses something`);
      const looksSecret =
        /SECRET|PASSWORD|TOKEN$|_KEY(_NEXT|_PREVIOUS)?$|SEED|DATABASE_URI|SMTP_URL|LOGIN_PROVIDERS/.test(env);
      t.equal(secret, looksSecret, `${env} is ${looksSecret ? 'a' : 'no'} secret`);
    }
  });

  t.test(`${program}: unset variables have their documented defaults`, async (t) => {
    const cases = product.cases(temporaryFolder(t));
    const development = resolve({ NODE_ENV: '' });
    t.same([development.problems, development.warnings], [[], []]);
    const bare = resolve({ NODE_ENV: 'production' });
    const started = resolve(production);
    t.same([started.problems, started.warnings], [[], []]);
    const blank = resolve({ ...Object.fromEntries(rows.map(({ env }) => [env, ''])), NODE_ENV: '' });
    for (const { name, env } of rows) {
      const { default: standard, required } = cases[env] as Cases;
      t.same(development.values[name], standard, env);
      t.same(blank.values[name], standard, `${env} is blank`);
      const missing = bare.problems.filter((problem) => problem.startsWith(`${env} is not set`));
      t.equal(missing.length, required ? 1 : 0, env);
      if (!required) t.same(started.values[name], standard, `${env} in production`);
    }
    t.equal(bare.problems.length, rows.filter(({ env }) => cases[env]?.required).length);
  });

  t.test(`${program}: each variable accepts its valid values, by environment and by code`, async (t) => {
    const cases = product.cases(temporaryFolder(t));
    for (const { name, env } of rows) {
      const { valid, invalid, requires = {} } = cases[env] as Cases;
      for (const [text, value] of Object.entries(valid)) {
        for (const environment of environments(product)) {
          const base = { ...environment, ...requires };
          const { values, problems, warnings } = resolve({ ...base, [env]: text });
          t.same([problems, warnings, values[name]], [[], [], value], `${env}=${text}`);
          const passed = resolve({ ...base, [env]: invalid[0] ?? text }, { [name]: value });
          t.same([passed.problems, passed.values[name]], [[], value], `${env}: what is passed wins`);
        }
      }
    }
  });

  t.test(`${program}: each variable refuses its invalid values`, async (t) => {
    const cases = product.cases(temporaryFolder(t));
    const [inProduction, inDevelopment] = environments(product);
    for (const { env } of rows) {
      const { invalid, unsafe = [] } = cases[env] as Cases;
      for (const text of invalid) {
        isAbout(t, resolve({ ...inProduction, [env]: text }).problems, env, text);
        isAbout(t, resolve({ ...inDevelopment, [env]: text }).problems, env, text);
      }
      for (const text of unsafe) {
        isAbout(t, resolve({ ...inProduction, [env]: text }).problems, env, text);
        const { problems, warnings } = resolve({ ...inDevelopment, [env]: text });
        t.same(problems, []);
        isAbout(t, warnings, env, text);
      }
    }
  });

  t.test(`${program}: only secrets and the plans may be read from files`, async (t) => {
    const folder = temporaryFolder(t);
    const cases = product.cases(folder);
    const file = join(folder, 'secret');
    for (const { name, env, file: fromFile } of rows) {
      const { [env]: _, ...others } = production;
      const { default: standard, valid, invalid, unsafe = [] } = cases[env] as Cases;
      const [[text, value] = ['']] = Object.entries(valid);
      const named = { ...others, [`${env}_FILE`]: file };
      // As editors and shells save it: with line endings, an empty line, a byte order mark.
      for (const [begin, end] of [[''], ['', '\n'], ['', '\r\n'], ['', '\n\n'], ['\ufeff', '\r\n']]) {
        writeFileSync(file, `${begin}${text}${end ?? ''}`);
        const { values, problems } = resolve(named);
        if (fromFile) t.same([problems, values[name]], [[], value], `${env}_FILE`);
        else if (!(env in production)) t.same(values[name], standard, `${env} is not read from a file`);
      }
      if (!fromFile) continue;
      const [both] = resolve({ ...named, [env]: text }).problems;
      t.equal(both, `${env} and ${env}_FILE are both set. Set only one of them.`);
      const [away] = resolve({ ...named, [`${env}_FILE`]: folder }).problems;
      t.equal(away, `${env}_FILE names a file that cannot be read (EISDIR).`);
      const [wrong = ''] = [...unsafe, ...invalid];
      writeFileSync(file, wrong);
      isAbout(t, resolve(named).problems, env, wrong);
    }
  });

  t.test(
    `${program}: a start and the doctor report all problems in one message, without a secret`,
    async (t) => {
      const cwd = temporaryFolder(t);
      const cases = product.cases(cwd);
      const isCanary = (text: string) => text.includes(CANARY);
      const wrong: Environment = { NODE_ENV: 'production' };
      for (const { env, secret } of rows) {
        const refused = [...(cases[env]?.invalid ?? []), ...(cases[env]?.unsafe ?? [])];
        // Equal secrets would be another problem.
        const others = refused.filter((text) => !secret || !Object.values(wrong).includes(text));
        const text = others.find(isCanary) ?? others[0];
        if (text !== undefined) wrong[env] = text;
      }
      // Some invalid secrets cannot contain a canary.
      t.ok(Object.values(wrong).filter(isCanary).length >= 3);
      const { NODE_ENV: _, ...named } = wrong;
      const start = startProgram(t, product.script, { args: product.args, cwd, env: wrong });
      const doctor = startProgram(t, product.script, { args: ['doctor', '--json'], cwd, env: wrong });
      t.same([await start.ended(), await doctor.ended()], [1, 1]);
      t.equal(start.lines[0], `${program} cannot start with this configuration:`);
      const problems = start.lines.slice(1);
      const { healthy, findings } = JSON.parse(doctor.lines.join('\n')) as {
        healthy: boolean;
        findings: Finding[];
      };
      t.notOk(healthy);
      for (const env of Object.keys(named)) {
        t.equal(problems.filter((problem) => problem.startsWith(`  - ${env} `)).length, 1, env);
        const found = findings.filter(({ about, level }) => about === env && level === 'problem');
        t.equal(found.length, 1, env);
        t.match(found[0]?.remedy, `Set ${env}`);
      }
      t.equal(problems.length, Object.keys(named).length);
      t.notMatch([...start.lines, ...doctor.lines].join('\n'), CANARY);
    },
  );
}

t.test('idp listens at PORT where IDP_PORT is not set, and names the invalid one of them', async (t) => {
  const { resolve } = products['idp'] as Product;
  t.equal(resolve({ PORT: '4000' }).values['port'], 4000);
  t.equal(resolve({ PORT: '4000', IDP_PORT: '5000' }).values['port'], 5000);
  t.equal(resolve({ PORT: '4000', IDP_PORT: '' }).values['port'], 4000);
  t.equal(resolve({ PORT: '' }).values['port'], 8080);
  t.match(resolve({ PORT: 'eighty' }).problems, [/^PORT /]);
  t.match(resolve({ PORT: '4000', IDP_PORT: 'eighty' }).problems, [/^IDP_PORT /]);
});

t.test('a misspelt production in NODE_ENV prevents the start', async (t) => {
  const { resolve } = products['saas-backend'] as Product;
  for (const name of [
    'prod',
    'Production',
    'PRODUCTION',
    'production ',
    ' production',
    '"production"',
    "'production'",
  ]) {
    const { problems } = resolve({ ...SAAS_PRODUCTION, NODE_ENV: name });
    t.match(problems[0], "NODE_ENV must be spelled 'production'", name);
  }
  for (const name of ['', 'development', 'test', 'staging', 'preproduction']) {
    t.same(resolve({ ...SAAS_PRODUCTION, NODE_ENV: name }).problems, [], name);
  }
});
