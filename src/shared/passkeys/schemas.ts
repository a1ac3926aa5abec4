import { isIP } from 'node:net';
import { type Static, Type } from 'typebox';
import type { Report } from '../../core/config/configuration-error.js';
import { option } from '../../core/config/options.js';
import {
  DisplayName,
  Email,
  Envelope,
  OptionalName,
  PasswordInput,
  Timestamp,
} from '../../core/http/schemas.js';

/** @param prefix of the environment variables */
export const passkeyOptions = (prefix: string) => ({
  passkeys: option(Type.Boolean({ default: false }), {
    env: `${prefix}PASSKEYS`,
    doc: 'Let people sign in with passkeys (WebAuthn). They belong to the host of the public URL: with another host, nobody can use them any more.',
  }),
});

/** Why browsers cannot use passkeys at this address; undefined if they can. */
function obstacleOf(publicUrl: string): string | undefined {
  const { hostname } = new URL(publicUrl);
  return isIP(hostname.replace(/^\[|\]$/g, '')) === 0
    ? undefined
    : `names an IP address, ${hostname}, at which browsers offer no passkeys`;
}

/** Prevents a start in production with passkeys that no browser can use. @param prefix of the environment variables */
export function refuseUnusablePasskeys(
  { passkeys, publicUrl }: { passkeys: boolean; publicUrl?: string | undefined },
  prefix: string,
  report: Report,
): void {
  // An invalid address is reported already.
  if (!passkeys || publicUrl === undefined || !URL.canParse(publicUrl)) return;
  const obstacle = obstacleOf(publicUrl);
  if (obstacle !== undefined)
    report.unsafe(`${prefix}PUBLIC_URL ${obstacle}.`, `Use a host name, or unset ${prefix}PASSKEYS.`);
}

/** Maximum size of a request body in bytes. */
export const BODY_LIMIT = 16 * 1024;

const closed = { additionalProperties: false };

const Base64url = Type.String({ accepts: 'base64url', maxLength: 8 * 1024, pattern: '^[\\w-]+$' });
const Id = Type.String({ accepts: 'the id of a passkey', maxLength: 1364, pattern: '^[\\w-]+$' });
const Ceremony = Type.String({
  accepts: 'the ceremony that the request for the options has returned',
  pattern: '^[\\w.-]{1,4096}$',
  writeOnly: true,
});

/** `PublicKeyCredential.toJSON()`, reduced to what is read. */
const credentialOf = <R extends Record<string, typeof Base64url>>(response: R) =>
  Type.Object(
    {
      id: Id,
      type: Type.Literal('public-key'),
      response: Type.Object(
        {
          ...response,
          transports: Type.Optional(
            Type.Array(
              Type.String({ accepts: 'the name of a transport', maxLength: 20, pattern: '^[a-z-]+$' }),
              { maxItems: 8 },
            ),
          ),
        },
        closed,
      ),
    },
    { ...closed, description: 'The result of `PublicKeyCredential.toJSON()`.' },
  );

const Created = credentialOf({ clientDataJSON: Base64url, attestationObject: Base64url });
const Signed = credentialOf({
  ...{ clientDataJSON: Base64url, authenticatorData: Base64url },
  ...{ signature: Base64url, userHandle: Base64url },
});

export const SignInBody = Type.Object(
  {
    ceremony: Ceremony,
    credential: Signed,
    verificationToken: Type.Optional(
      Type.String({
        ...{ minLength: 1, maxLength: 512, accepts: 'the token of a link', writeOnly: true },
        description: 'The token of a mailed link, which confirms the address.',
      }),
    ),
  },
  closed,
);
export const SignUpBeginBody = Type.Object({ email: Email, name: Type.Optional(OptionalName) }, closed);
export const SignUpBody = Type.Object({ ceremony: Ceremony, credential: Created }, closed);
export const AddBody = Type.Object(
  { ceremony: Ceremony, credential: Created, name: Type.Optional(DisplayName) },
  closed,
);
export const RenameBody = Type.Object({ id: Id, name: DisplayName }, closed);
export const RemovalBody = Type.Object({ id: Id, password: Type.Optional(PasswordInput) }, closed);

export const BegunAnswer = Envelope(
  Type.Object({
    ceremony: Type.String({ description: 'Returns with the credential, within ten minutes.' }),
    options: Type.Object(
      {},
      {
        additionalProperties: true,
        description:
          'For `PublicKeyCredential.parseCreationOptionsFromJSON` or `parseRequestOptionsFromJSON`.',
      },
    ),
  }),
);

const PasskeyView = Type.Object({
  id: Type.String(),
  name: Type.String(),
  backedUp: Type.Boolean({ description: 'Whether it is synchronized to other devices.' }),
  createdAt: Timestamp,
  lastUsedAt: Type.Union([Timestamp, Type.Null()]),
});
export type PasskeyView = Static<typeof PasskeyView>;

export const PasskeysAnswer = Envelope(Type.Object({ passkeys: Type.Array(PasskeyView) }));
export const PasskeyAnswer = Envelope(PasskeyView);
