import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { type Static, type TObject, type TSchema, Type } from 'typebox';
import { schemaErrors } from '../src/core/config/options.js';
import { describeErrors } from '../src/core/config/validation-messages.js';
import { openInput } from './options.js';
import { parseCsv } from './people-csv.js';
import { fail } from './terminal.js';

/** The exports of other products, which `saas-backend user import --from` reads as they are. */

type Fields = Record<string, unknown>;

/** Counts what a user has and the import does not take. */
type Skip = (what: string) => undefined;

interface Users {
  /** What the index in `lines` counts. */
  unit: 'line' | 'user';
  /** A user each, as JSON; empty between rows of several lines. */
  lines: string[];
}

interface Product {
  usersIn(text: string): Users;
  /** The name of the field with the ID. */
  id: string;
  /** What the second file adds to users, by their IDs. */
  additionsOf?(text: string): { size?: number; get(id: unknown): Fields | undefined };
  schema: TObject;
  /** The record for the import; absent values are undefined. @throws InvalidExport */
  convert(user: Fields, skip: Skip): Fields;
}

/** A part of an export that cannot be imported; the message is the reason. */
class InvalidExport extends Error {}

/** @param at the beginning of the message */
function validated<S extends TSchema>(schema: S, value: unknown, at = ''): Static<S> {
  const errors = schemaErrors(schema, value);
  if (errors.length === 0) return value as Static<S>;
  const [problem] = describeErrors(errors);
  throw new InvalidExport(`${at}${problem?.path} ${problem?.message}`);
}

function parseJson(text: string, at = ''): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new InvalidExport(`${at}has text that is not valid JSON`);
  }
}

const define = <S extends TObject>(
  product: Omit<Product, 'schema' | 'convert'> & { schema: S; convert(user: Static<S>, skip: Skip): Fields },
): Product => ({
  ...product,
  convert: (user, skip) => product.convert(validated(product.schema, user), skip),
});

const Text = Type.String();
const Secret = Type.String({ writeOnly: true });
const MaybeText = Type.Optional(Text);
const MaybeSecret = Type.Optional(Secret);
const MaybeFlag = Type.Optional(Type.Boolean());
const MaybeTime = Type.Optional(Type.Union([Text, Type.Number()]));
const MaybeObject = Type.Optional(Type.Record(Text, Type.Unknown()));

const listOf = <S extends TSchema>(item: S) => Type.Optional(Type.Array(item));

const joined = (...parts: (string | undefined)[]) =>
  parts
    .map((part) => part?.trim())
    .join(' ')
    .trim() || undefined;

const Auth0Hash = Type.Object({
  ...{ _id: Type.Object({ $oid: Text }), alt_id: MaybeText, passwordHash: MaybeSecret },
});

const auth0 = define({
  usersIn: (text) => ({ unit: 'line', lines: text.split('\n') }),
  id: 'user_id',
  additionsOf(text) {
    const hashes = new Map<string, Fields>();
    for (const [index, line] of text.split('\n').entries()) {
      if (line.trim() === '') continue;
      const at = `line ${index + 1}: `;
      const { _id, alt_id, passwordHash } = validated(Auth0Hash, parseJson(line, at), at);
      hashes.set(`auth0|${alt_id ?? _id.$oid}`, { passwordHash });
    }
    return hashes;
  },
  schema: Type.Object({
    ...{ user_id: Text, email: MaybeText, email_verified: MaybeFlag, blocked: MaybeFlag },
    ...{ name: MaybeText, given_name: MaybeText, family_name: MaybeText, created_at: MaybeTime },
    ...{ user_metadata: MaybeObject, app_metadata: MaybeObject, passwordHash: MaybeSecret },
    identities: listOf(Type.Object({ provider: Text })),
  }),
  convert(user, skip) {
    const { email, name, identities = [] } = user;
    for (const { provider } of identities) if (provider !== 'auth0') skip(`identity ${provider}`);
    const id = user.user_id.replace('|', '_');
    return {
      id: /^[\w-]{1,64}$/.test(id) ? id : skip('user_id with other characters'),
      email,
      // Auth0 repeats the address if it does not know the name.
      name: name === email ? joined(user.given_name, user.family_name) : name,
      passwordHash: user.passwordHash,
      emailVerified: user.email_verified,
      suspended: user.blocked,
      createdAt: user.created_at,
      publicMetadata: user.user_metadata,
      privateMetadata: user.app_metadata,
    };
  },
});

/** Text in the export of the dashboard, a list in that of the command. */
const ClerkAddresses = Type.Optional(Type.Union([Text, Type.Array(Text)]));

const ClerkAddress = Type.Object({
  ...{ id: Text, email_address: Text },
  verification: Type.Optional(Type.Union([Type.Null(), Type.Object({ status: MaybeText })])),
});

const addressesIn = (given: Static<typeof ClerkAddresses> = []): string[] =>
  (typeof given === 'string' ? given.split(/[|,]/) : given).map((one) => one.trim()).filter(Boolean);

/** Clerk has the hashes of these in the format that the import reads. */
const CLERK_HASHERS = ['bcrypt', 'argon2i', 'argon2id', 'pbkdf2_sha256_django'];

const clerk = define({
  usersIn: (text) => (/^\s*[[{]/.test(text) ? listIn(text) : rowsIn(text)),
  id: 'id',
  additionsOf(text) {
    const rows = rowsIn(text).lines.map((row) => (row === '' ? {} : JSON.parse(row)) as Fields);
    return new Map(
      rows
        .filter(({ password_digest }) => password_digest)
        .map(({ id, password_digest, password_hasher, totp_secret }) => [
          id,
          { password_digest, password_hasher, totp_secret },
        ]),
    );
  },
  schema: Type.Object({
    ...{ id: Text, first_name: MaybeText, last_name: MaybeText, banned: MaybeFlag, created_at: MaybeTime },
    ...{ primary_email_address: MaybeText, primary_email_address_id: MaybeText },
    ...{ verified_email_addresses: ClerkAddresses, unverified_email_addresses: ClerkAddresses },
    ...{ email_addresses: listOf(ClerkAddress), external_accounts: listOf(Type.Object({ provider: Text })) },
    ...{ password_digest: MaybeSecret, password_hasher: MaybeText },
    ...{ public_metadata: MaybeObject, private_metadata: MaybeObject },
  }),
  convert(user, skip) {
    const { email_addresses: listed = [], external_accounts = [], password_digest: digest } = user;
    for (const { provider } of external_accounts) skip(`identity ${provider}`);
    const primary =
      user.primary_email_address?.trim() ||
      listed.find(({ id }) => id === user.primary_email_address_id)?.email_address;
    const verified = addressesIn(user.verified_email_addresses);
    for (const { email_address, verification } of listed)
      if (verification?.status === 'verified') verified.push(email_address);
    // The command names no unverified address as the primary one, and leaves that out of its lists.
    const isOfCommand = listed.length === 0 && typeof user.verified_email_addresses !== 'string';
    if (isOfCommand && primary) verified.push(primary);
    const all = [
      ...[primary ?? '', ...verified, ...addressesIn(user.unverified_email_addresses)],
      ...listed.map((one) => one.email_address),
    ];
    const [email, ...others] = new Set(all.filter(Boolean));
    if (others.length > 0) skip('other e-mail addresses');
    const isKept = CLERK_HASHERS.includes(user.password_hasher ?? '');
    return {
      ...{ id: user.id, email, name: joined(user.first_name, user.last_name) },
      passwordHash: digest ? (isKept ? digest : skip(`password of ${user.password_hasher}`)) : undefined,
      emailVerified: email !== undefined && verified.includes(email),
      suspended: user.banned,
      createdAt: user.created_at || undefined,
      publicMetadata: user.public_metadata,
      privateMetadata: user.private_metadata,
    };
  },
});

const FirebaseHash = Type.Object({
  ...{ algorithm: Type.Literal('SCRYPT'), base64_signer_key: Secret, base64_salt_separator: Secret },
  ...{ rounds: Text, mem_cost: Text },
});

const firebase = define({
  usersIn: listIn,
  id: 'localId',
  additionsOf(text) {
    const words = text.split(/[\s,{}]+/);
    const pairs = words.flatMap((word, index) =>
      word.endsWith(':') ? [[word.slice(0, -1), words[index + 1]]] : [],
    );
    const hash = validated(FirebaseHash, Object.fromEntries(pairs));
    return { get: () => ({ hash }) };
  },
  schema: Type.Object({
    ...{ localId: Text, email: MaybeText, emailVerified: MaybeFlag, displayName: MaybeText },
    ...{ disabled: MaybeFlag, createdAt: MaybeTime, customAttributes: MaybeText },
    ...{ passwordHash: MaybeSecret, salt: MaybeSecret, hash: Type.Optional(FirebaseHash) },
    providerUserInfo: listOf(Type.Object({ providerId: Text })),
  }),
  convert(user, skip) {
    const { hash, passwordHash: key, customAttributes: claims, providerUserInfo = [] } = user;
    for (const { providerId } of providerUserInfo) skip(`identity ${providerId}`);
    if (key && !hash)
      throw new InvalidExport('passwordHash needs the file with the hash_config: --passwords');
    const cost = hash && `n=${hash.mem_cost},r=${hash.rounds},p=1`;
    const secrets = hash && `ss=${hash.base64_salt_separator},sk=${hash.base64_signer_key}`;
    return {
      ...{ id: user.localId, email: user.email, name: user.displayName, suspended: user.disabled },
      passwordHash: key && `$fbscrypt$v=1,${cost},${secrets}$${user.salt}$${key}`,
      emailVerified: user.emailVerified,
      createdAt: user.createdAt && Number(user.createdAt),
      publicMetadata: claims && parseJson(claims),
    };
  },
});

const KeycloakSecret = Type.Object({ value: Secret, salt: MaybeSecret });

const KeycloakHash = Type.Object({
  ...{ algorithm: Text, hashIterations: Type.Number() },
  additionalParameters: Type.Optional(Type.Record(Text, Type.Array(Text))),
});

const KeycloakCredential = Type.Object({ type: Text, secretData: MaybeSecret, credentialData: MaybeText });

function keycloakHash(credential: Static<typeof KeycloakCredential>, skip: Skip): string | undefined {
  const { value, salt = '' } = validated(KeycloakSecret, parseJson(credential.secretData ?? '{}'));
  const given = validated(KeycloakHash, parseJson(credential.credentialData ?? '{}'));
  const { algorithm, hashIterations: rounds, additionalParameters: more = {} } = given;
  const end = `$${salt}$${value}`.replaceAll('=', '');
  if (/^pbkdf2(-sha256|-sha512)?$/.test(algorithm)) return `$${algorithm}$i=${rounds}${end}`;
  if (algorithm !== 'argon2') return skip(`password of ${algorithm}`);
  const [type, memory, lanes] = [more['type'], more['memory'], more['parallelism']];
  return `$argon2${type}$v=${more['version']?.[0] === '1.3' ? 19 : 16}$m=${memory},t=${rounds},p=${lanes}${end}`;
}

const keycloak = define({
  usersIn: listIn,
  id: 'id',
  schema: Type.Object({
    ...{ id: Text, username: MaybeText, email: MaybeText, emailVerified: MaybeFlag, enabled: MaybeFlag },
    ...{ firstName: MaybeText, lastName: MaybeText, createdTimestamp: MaybeTime, attributes: MaybeObject },
    ...{ credentials: listOf(KeycloakCredential) },
    federatedIdentities: listOf(Type.Object({ identityProvider: Text })),
  }),
  convert(user, skip) {
    const { email, username, credentials = [], federatedIdentities = [] } = user;
    for (const { identityProvider } of federatedIdentities) skip(`identity ${identityProvider}`);
    for (const { type } of credentials) if (type !== 'password') skip(`credential ${type}`);
    if (username !== email) skip('username');
    const password = credentials.find(({ type }) => type === 'password');
    return {
      ...{ id: user.id, email, name: joined(user.firstName, user.lastName) },
      passwordHash: password && keycloakHash(password, skip),
      emailVerified: user.emailVerified,
      suspended: user.enabled === false,
      createdAt: user.createdTimestamp,
      privateMetadata: user.attributes,
    };
  },
});

/** The users of a JSON document: a list, or an object that contains it. */
function listIn(text: string): Users {
  const document = parseJson(text) as { users?: unknown; data?: unknown } | null;
  const users = Array.isArray(document) ? document : (document?.users ?? document?.data);
  if (!Array.isArray(users)) throw new InvalidExport('has no list of users');
  return { unit: 'user', lines: users.map((user) => JSON.stringify(user)) };
}

/** The rows of a CSV text, with the names of the columns. */
function rowsIn(text: string): Users {
  const [header, ...rows] = parseCsv(text);
  const lines = Array.from({ length: rows.at(-1)?.line ?? 0 }, () => '');
  for (const { line, cells } of rows) {
    const named = cells.map((cell, index) => [header?.cells[index] ?? `cell ${index + 1}`, cell]);
    lines[line - 1] = JSON.stringify(Object.fromEntries(named));
  }
  return { unit: 'line', lines };
}

const PRODUCTS = { auth0, clerk, firebase, keycloak };

export type ProductName = keyof typeof PRODUCTS;

export const PRODUCT_NAMES = Object.keys(PRODUCTS);

/**
 * Opens an export; the command fails if it cannot be read.
 * @param passwords the second file, if there is one
 */
export async function openExport(name: ProductName, file: string, passwords: string | undefined) {
  const { usersIn, id, additionsOf, schema, convert } = PRODUCTS[name];
  if (passwords !== undefined && !additionsOf)
    fail(2, `error: an export of ${name} contains the hashes: omit --passwords.`);
  const { unit, lines } = await read(file, usersIn);
  const additions =
    passwords === undefined ? undefined : await read(passwords, (text) => additionsOf?.(text));
  const counts = new Map<string, number>();
  const completed = new Set<unknown>();
  return {
    unit,
    input: Readable.from(lines.map((line) => Buffer.from(`${line}\n`))),
    /** The record for the import, or the reason why there is none. */
    convert(given: Fields): Fields | string {
      const addition = additions?.get(given[id]);
      if (addition) completed.add(given[id]);
      const all = Object.entries({ ...given, ...addition }).filter(([, value]) => value !== null);
      const skipped = new Set(
        all
          .filter(([field, value]) => !Object.hasOwn(schema.properties, field) && !isEmpty(value))
          .map(([field]) => field),
      );
      try {
        const record = convert(Object.fromEntries(all), (what) => void skipped.add(what));
        if (!record['passwordHash']) skipped.add('missing password');
        for (const what of skipped) counts.set(what, (counts.get(what) ?? 0) + 1);
        return record;
      } catch (error) {
        if (error instanceof InvalidExport) return error.message;
        throw error;
      }
    },
    /** What was not imported, with the number of users. */
    notImported(): Record<string, number> {
      const unused = (additions?.size ?? 0) - completed.size;
      const all = [...counts, ...(unused > 0 ? [['passwords without a user', unused] as const] : [])];
      return Object.fromEntries(all.sort(([one], [other]) => (one < other ? -1 : 1)));
    },
  };
}

async function read<T>(file: string, parse: (text: string) => T): Promise<T> {
  const bytes = await buffer(openInput(file).input);
  try {
    // A silently replaced character could not be repaired by another import.
    return parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    return fail(1, `${file} cannot be read: ${error instanceof Error ? error.message : error}`);
  }
}

const isEmpty = (value: unknown): boolean =>
  !value || (typeof value === 'object' && Object.keys(value).length === 0);
