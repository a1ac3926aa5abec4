import type { AuthenticationResponseJSON, RegistrationResponseJSON } from '@simplewebauthn/server';
import { MINUTE } from '../../core/kernel/clock.js';
import { sha256 } from '../../core/kernel/secrets.js';
import type { PasskeyDocument } from './store.js';

/** The two ceremonies of WebAuthn Level 3: what browsers get, and whether their response is valid. */

/** Who asks for a passkey. */
export interface RelyingParty {
  /** The host to which passkeys are bound. */
  id: string;
  /** The origins of the pages that may use them. */
  origins: readonly string[];
  /** What browsers and password managers show. */
  name: string;
}

/** ES256 and RS256, one of which every authenticator supports. */
const ALGORITHMS = [-7, -257];

/** How long the browser waits for the person. */
const TIMEOUT_MS = 5 * MINUTE;

/** The challenge of a form: its token cannot be guessed, expires, and is bound to the browser that got it. */
export const challengeOf = (form: string): string => sha256(form);

/** As `PublicKeyCredential.parseCreationOptionsFromJSON` reads it. */
export function creationOptions(
  rp: RelyingParty,
  user: { id: string; handle: string; name?: string },
  form: string,
  existing: readonly Pick<PasskeyDocument, 'id' | 'transports'>[],
) {
  return {
    rp: { id: rp.id, name: rp.name },
    user: { id: userHandleOf(user.id), name: user.handle, displayName: user.name ?? user.handle },
    challenge: challengeOf(form),
    pubKeyCredParams: ALGORITHMS.map((alg) => ({ type: 'public-key', alg })),
    timeout: TIMEOUT_MS,
    excludeCredentials: existing.map(({ id, transports }) => ({ type: 'public-key', id, transports })),
    authenticatorSelection: {
      residentKey: 'required',
      requireResidentKey: true,
      userVerification: 'required',
    },
    attestation: 'none',
  };
}

/** As `PublicKeyCredential.parseRequestOptionsFromJSON` reads it: any passkey of this host. */
export const requestOptions = (rp: RelyingParty, form: string) => ({
  rpId: rp.id,
  challenge: challengeOf(form),
  timeout: TIMEOUT_MS,
  userVerification: 'required',
});

/** What the user handle of a passkey contains. */
export const userHandleOf = (account: string): string => Buffer.from(account).toString('base64url');

/** The result of a registration: the fields of the new passkey. Null for an invalid response. */
export async function verifyCreation(
  rp: RelyingParty,
  form: string,
  credential: string,
): Promise<Pick<
  PasskeyDocument,
  'id' | 'publicKey' | 'counter' | 'transports' | 'backupEligible' | 'backedUp'
> | null> {
  const response = parseCredential(credential, ['clientDataJSON', 'attestationObject']);
  if (!response) return null;
  const { verifyRegistrationResponse } = await import('@simplewebauthn/server');
  const verification = await nullIfInvalid(
    verifyRegistrationResponse({
      // Of the browser: `parseCredential` has checked the fields by name, which the type of the library cannot see.
      response: response as unknown as RegistrationResponseJSON,
      supportedAlgorithmIDs: ALGORITHMS,
      ...expectationsOf(rp, form),
    }),
  );
  if (!verification?.verified) return null;
  const { credential: created, credentialDeviceType, credentialBackedUp } = verification.registrationInfo;
  // The library compares the ID in the authenticator data with no other one.
  if (created.id !== response.id) return null;
  return {
    id: created.id,
    publicKey: Buffer.from(created.publicKey).toString('base64url'),
    counter: created.counter,
    transports: response.transports,
    backupEligible: credentialDeviceType === 'multiDevice',
    backedUp: credentialBackedUp,
  };
}

/** A sign-in that was not verified yet. */
export interface Assertion {
  /** The credential ID. */
  id: string;
  userHandle: string;
  json: ParsedCredential;
}

/** What an authenticator reports about a passkey with each use. */
export type AuthenticatorState = Pick<PasskeyDocument, 'counter' | 'backupEligible' | 'backedUp'>;

/** The response of a browser to `requestOptions`; null for anything else. */
export function parseAssertion(credential: string): Assertion | null {
  const json = parseCredential(credential, [
    'clientDataJSON',
    'authenticatorData',
    'signature',
    'userHandle',
  ]);
  return json && { id: json.id, userHandle: json.response['userHandle'] ?? '', json };
}

/** The state that a valid signature contains; null for an invalid one. It is not compared with the stored one. */
export async function verifyAssertion(
  rp: RelyingParty,
  form: string,
  { json }: Assertion,
  { id, publicKey }: Pick<PasskeyDocument, 'id' | 'publicKey'>,
): Promise<AuthenticatorState | null> {
  const { verifyAuthenticationResponse } = await import('@simplewebauthn/server');
  const verification = await nullIfInvalid(
    verifyAuthenticationResponse({
      // As above.
      response: json as unknown as AuthenticationResponseJSON,
      // The library compares the counter before it verifies the signature.
      credential: { id, publicKey: Uint8Array.from(Buffer.from(publicKey, 'base64url')), counter: 0 },
      ...expectationsOf(rp, form),
    }),
  );
  if (!verification?.verified) return null;
  const { newCounter, credentialDeviceType, credentialBackedUp } = verification.authenticationInfo;
  return {
    counter: newCounter,
    backupEligible: credentialDeviceType === 'multiDevice',
    backedUp: credentialBackedUp,
  };
}

/** Verifies what browsers respond. */
export type Verification = { verifyCreation: typeof verifyCreation; verifyAssertion: typeof verifyAssertion };

const expectationsOf = (rp: RelyingParty, form: string) => ({
  expectedChallenge: challengeOf(form),
  expectedOrigin: [...rp.origins],
  expectedRPID: rp.id,
  requireUserVerification: true,
});

/** The library rejects with an error that says what is invalid, which helps neither the person nor the operator. */
const nullIfInvalid = <T>(verification: Promise<T>): Promise<T | null> => verification.catch(() => null);

/** `PublicKeyCredential.toJSON()`, reduced to what is verified. */
interface ParsedCredential {
  id: string;
  rawId: string;
  type: 'public-key';
  clientExtensionResults: Record<string, never>;
  response: Record<string, string>;
  transports: string[];
}

const BASE64URL = /^[\w-]+$/;

/** 1023 bytes (WebAuthn §7.1 step 25). */
const MAX_ID_LENGTH = 1364;

const MAX_TRANSPORTS = 8;

/** Reads a credential with these fields in its response. Null if one is absent, or a page frames another one. */
function parseCredential(text: string, fields: readonly string[]): ParsedCredential | null {
  const { id, type, response } = objectIn(text);
  const values = isObject(response) ? response : {};
  const read = fields.map((name) => [name, values[name]] as const);
  if (typeof id !== 'string' || id.length > MAX_ID_LENGTH || !BASE64URL.test(id)) return null;
  if (type !== 'public-key' || !read.every(([, value]) => isBase64url(value))) return null;
  const clientData = objectIn(Buffer.from(String(values['clientDataJSON']), 'base64url').toString());
  // No page may frame ours, so that the person sees whose passkey is used.
  if (clientData['crossOrigin'] === true) return null;
  return {
    ...{ id, rawId: id, type, clientExtensionResults: {} },
    response: Object.fromEntries(read) as Record<string, string>,
    transports: [values['transports']].flat().filter(isTransport).slice(0, MAX_TRANSPORTS),
  };
}

const isBase64url = (value: unknown): value is string => typeof value === 'string' && BASE64URL.test(value);

const isTransport = (value: unknown): value is string =>
  typeof value === 'string' && /^[a-z-]{1,20}$/.test(value);

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;

/** The object in a JSON text; empty for another text. */
function objectIn(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : {};
  } catch (error) {
    if (error instanceof SyntaxError) return {};
    throw error;
  }
}
