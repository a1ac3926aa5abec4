import { generateKeyPairSync, type JsonWebKey, type KeyObject, randomUUID } from 'node:crypto';
import { SignJWT } from 'jose';
import type { Test } from 'tap';
import { createCommit } from '../../src/core/ops/commit.js';
import type { Store } from '../../src/core/storage/collection.js';
import { ASSERTION_TOKEN, JWT_BEARER } from '../../src/idp/oidc/identity-assertions/trust.js';
import { TOKEN_EXCHANGE } from '../../src/idp/oidc/tokens/request.js';
import { createTrustAdministration } from '../../src/idp/trust/administration.js';
import type { Answer } from './app.js';
import { clientKey, documentHost } from './client-keys.js';
import { SILENT_AUDIT } from './effects.js';
import {
  type IdpApp,
  type IdpAppOptions,
  ISSUER,
  idpApp,
  idpStore,
  type RegisteredClient,
  search,
} from './idp.js';
import { COMMAND_SOURCE } from './operator.js';
import { addResource, FILES, FILES_INPUT } from './resources.js';

/** Identity assertions (ID-JAG) between providers. */

export const ID_TOKEN = 'urn:ietf:params:oauth:token-type:id_token';
export const REFRESH_TOKEN = 'urn:ietf:params:oauth:token-type:refresh_token';

/** What `idp trusted-issuer` and `idp audience` change. */
export const trustIn = (store: Store, { clock, random }: Pick<IdpApp, 'clock' | 'random'>) =>
  createTrustAdministration(store, {
    ...{ clock, random, commit: createCommit(store), audit: SILENT_AUDIT },
    ownIssuer: () => 'https://id.example.test',
    allowHttp: true,
    isClient: async (id) => id !== 'cid_unknown',
    scopesOf: async (resource) => (resource === FILES ? FILES_INPUT.scopes.map(({ name }) => name) : null),
  });

export type SigningAlgorithm = 'EdDSA' | 'ES256' | 'RS256' | 'PS256';

export interface IssuerKey {
  jwk: JsonWebKey & { kid: string };
  privateKey: KeyObject;
  algorithm: SigningAlgorithm;
}

export function issuerKey(algorithm: SigningAlgorithm, modulusLength = 2048): IssuerKey {
  const kid = `key-${algorithm}`;
  if (algorithm === 'EdDSA' || algorithm === 'ES256') return clientKey(algorithm, kid);
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength });
  return { jwk: { ...publicKey.export({ format: 'jwk' }), kid }, privateKey, algorithm };
}

/** A provider of another maker, which publishes its keys. */
export async function foreignIssuer(t: Test, key: IssuerKey = issuerKey('EdDSA')) {
  const host = await documentHost(t);
  const issuer = host.url;
  const publish = (...keys: { jwk: JsonWebKey }[]) => {
    host.documents['/jwks'] = { keys: keys.map(({ jwk }) => jwk) };
  };
  host.documents['/.well-known/openid-configuration'] = { issuer, jwks_uri: `${issuer}/jwks` };
  publish(key);
  return { host, issuer, key, publish };
}

export interface Signed {
  claims?: Record<string, unknown>;
  header?: Record<string, unknown>;
  key?: IssuerKey;
}

/** An assertion; `undefined` in `claims` and `header` leaves one out. */
export function foreignAssertion(
  foreign: { issuer: string; key: IssuerKey },
  {
    client,
    sub,
    now,
    audience = ISSUER,
    claims = {},
    header = {},
    key = foreign.key,
  }: Signed & { client: { id: string }; sub: string; now: number; audience?: string },
): Promise<string> {
  const iat = Math.floor(now / 1000);
  const whole = {
    ...{ iss: foreign.issuer, sub, aud: audience, client_id: client.id },
    ...{ iat, exp: iat + 300, jti: randomUUID(), resource: FILES, scope: 'files:read' },
    ...claims,
  };
  const typed = { alg: key.algorithm, kid: key.jwk.kid, typ: 'oauth-id-jag+jwt', ...header };
  return new SignJWT(JSON.parse(JSON.stringify(whole)))
    .setProtectedHeader(JSON.parse(JSON.stringify(typed)))
    .sign(key.privateKey);
}

/** A provider that accepts the assertions of a foreign one, about a person whom the operator has linked. */
export async function acceptingWorld(t: Test, options: IdpAppOptions = {}, key?: IssuerKey) {
  const idp = await idpApp(t, {
    ...{ limits: false, identityAssertions: 'accept', loopbackDocuments: true },
    ...options,
  });
  const files = await addResource(t, idp);
  const foreign = await foreignIssuer(t, key);
  const [client, person] = [await idp.createClient(), await idp.makeHuman()];
  const trust = trustIn(await idpStore(t, idp), idp);
  const allowed = { resource: FILES, scopes: ['files:read', 'files:write'] };
  await trust.setIssuer(foreign.issuer, { clients: [client.id], resources: [allowed] }, COMMAND_SOURCE);
  await trust.link(foreign.issuer, '00u1', person.sub, COMMAND_SOURCE);

  const sign = (signed: Signed = {}): Promise<string> =>
    foreignAssertion(foreign, {
      ...{ client, sub: '00u1', now: idp.clock.now(), audience: idp.server.fastify.idp.issuer() },
      ...signed,
    });
  const present = (
    assertion: string,
    more: Record<string, string | undefined> = {},
    by: RegisteredClient = client,
    headers: Record<string, string> = {},
  ): Promise<Answer> => idp.request('POST', '/token', { form: presentation(by, assertion, more), headers });
  return { idp, files, foreign, client, person, trust, sign, present };
}

/** The form with which a client presents an assertion. */
export const presentation = (
  client: RegisteredClient,
  assertion: string,
  more: Record<string, string | undefined> = {},
): string =>
  search({ grant_type: JWT_BEARER, assertion, client_id: client.id, client_secret: client.secret, ...more });

export const THERE = 'https://chat.example.test';
export const CHAT = 'https://chat-api.example.test/mcp';

/** A provider that issues assertions for another server, and a person who has signed in to a client. */
export async function issuingWorld(t: Test, options: IdpAppOptions = {}) {
  const idp = await idpApp(t, { limits: false, identityAssertions: 'issue', ...options });
  const client = await idp.createClient();
  const human = await idp.makeHuman();
  const trust = trustIn(await idpStore(t, idp), idp);
  const clients = [{ id: client.id, idThere: 'wiki' }];
  const resources = [{ resource: CHAT, scopes: ['chat:read', 'chat:write'] }];
  await trust.setAudience(THERE, { clients, resources }, COMMAND_SOURCE);
  /** The tokens of a sign-in with a session. */
  const signIn = async (scope = 'openid offline_access', by = client) => {
    const { browser, page } = await idp.visit(by, { scope });
    const { location } = await browser.submit(page, { handle: human.handle, password: human.password });
    const code = new URL(location ?? '').searchParams.get('code') ?? '';
    return { browser, tokens: (await idp.redeem(by, code)).body };
  };
  const exchange = (
    token: string,
    more: Record<string, string | undefined> = {},
    by = client,
    headers: Record<string, string> = {},
  ): Promise<Answer> =>
    idp.request('POST', '/token', {
      form: search({
        ...{ grant_type: TOKEN_EXCHANGE, requested_token_type: ASSERTION_TOKEN },
        ...{ client_id: by.id, client_secret: by.secret, audience: THERE },
        ...{ subject_token: token, subject_token_type: ID_TOKEN },
        ...more,
      }),
      headers,
    });
  return { idp, client, human, trust, resources, signIn, exchange };
}
