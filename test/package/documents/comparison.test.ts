import t from 'tap';
import * as entry from '../../../src/index.js';
import { readPage } from './blocks.js';

/** What docs/is-it-for-you.md says is included exists, and what it says is not included does not. */

const page = readPage('docs/is-it-for-you.md');

/** The text below a heading of the second level. */
function section(heading: string): string {
  const text = page.split(/^## /m).find((part) => part.startsWith(`${heading}\n`));
  if (text === undefined) throw new Error(`docs/is-it-for-you.md has no heading '${heading}'`);
  return text;
}

const options = [...readPage('.env.example').matchAll(/^#? ?([A-Z][A-Z0-9_]+)=/gm)].map(
  ([, name = '']) => name,
);

interface Description {
  servers: { url: string }[];
  paths: Record<string, object>;
}

/** Every method and path of both products: `POST /api/auth/register`, `GET /authorize`. */
const routes = ['saas-backend', 'idp'].flatMap((product) => {
  const { paths }: Description = JSON.parse(readPage(`docs/openapi/${product}.json`));
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
});

const { dependencies, optionalDependencies, peerDependencies } = JSON.parse(readPage('package.json'));
const packages = [dependencies, optionalDependencies, peerDependencies].flatMap((list) =>
  Object.keys(list ?? {}),
);

t.test('every option, route and export of what is included exists', (t) => {
  const names = [...section('What is included').matchAll(/`([^`]+)`/g)].map(([, name = '']) => name);
  const known = new Set([...options, ...routes, ...Object.keys(entry)]);
  t.ok(names.length > 15);
  t.strictSame(
    names.filter((name) => !known.has(name)),
    [],
  );
  t.end();
});

/** What would be there if a feature were: a part of an option, a route or a dependency. */
const SIGNS: Record<string, RegExp> = {
  SAML: /saml/i,
  SCIM: /scim/i,
  LDAP: /ldap/i,
  SMS: /sms|phone|twilio/i,
  Captcha: /captcha|turnstile/i,
  'Anonymous users': /anonym|guest/i,
  'Other payment providers': /paddle|paypal|lemon|polar|braintree|adyen|mollie/i,
  MySQL: /mysql|maria/i,
  Realms: /realm|tenant/i,
  'Front-channel logout': /front-?channel/i,
  Wallets: /wallet|ethereum|web3/i,
  'Breached passwords': /pwned|hibp|breach/i,
};

t.test('no option, route or dependency has what is not included', (t) => {
  const listed = [...section('What is not included').matchAll(/^- \*\*([^*]+)\*\*/gm)].map(
    ([, name = '']) => name,
  );
  t.strictSame(listed.sort(), Object.keys(SIGNS).sort());
  for (const name of listed) {
    const found = [...options, ...routes, ...packages].filter((each) => SIGNS[name]?.test(each));
    t.strictSame(found, [], name);
  }
  t.end();
});
