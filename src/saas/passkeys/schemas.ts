import { type Static, Type } from 'typebox';
import {
  Closed,
  DisplayName,
  Email,
  Envelope,
  NewUserFieldsInput,
  OptionalName,
  PasswordInput,
  Timestamp,
} from '../../core/http/schemas.js';

/** Maximum size of a request body in bytes. */
export const BODY_LIMIT = 16 * 1024;

const Base64url = Type.String({ accepts: 'base64url', maxLength: 8 * 1024, pattern: '^[\\w-]+$' });
const Id = Type.String({ accepts: 'the id of a passkey', maxLength: 1364, pattern: '^[\\w-]+$' });
const Ceremony = Type.String({
  accepts: 'the ceremony that the request for the options has returned',
  // Those of a registration contain what the visitor typed.
  pattern: '^[\\w.-]{1,8192}$',
  writeOnly: true,
});

const Transport = Type.String({ accepts: 'the name of a transport', maxLength: 20, pattern: '^[a-z-]+$' });

/** `PublicKeyCredential.toJSON()`, reduced to what is read. */
const credentialOf = <R extends Record<string, typeof Base64url>>(response: R) =>
  Type.Object(
    {
      id: Id,
      type: Type.Literal('public-key'),
      response: Closed({ ...response, transports: Type.Optional(Type.Array(Transport, { maxItems: 8 })) }),
    },
    { additionalProperties: false, description: 'The result of `PublicKeyCredential.toJSON()`.' },
  );

const Created = credentialOf({ clientDataJSON: Base64url, attestationObject: Base64url });
const Signed = credentialOf({
  ...{ clientDataJSON: Base64url, authenticatorData: Base64url },
  ...{ signature: Base64url, userHandle: Base64url },
});

export const PasskeySignInBody = Closed({
  ceremony: Ceremony,
  credential: Signed,
  verificationToken: Type.Optional(
    Type.String({
      ...{ minLength: 1, maxLength: 512, accepts: 'the token of a link', writeOnly: true },
      description: 'The token of a mailed link, which confirms the address.',
    }),
  ),
});
const newAccount = { email: Email, name: Type.Optional(OptionalName) };
export const PlainSignUpBeginBody = Closed(newAccount);
/** With the option `userFields`. */
export const SignUpBeginBody = Closed({ ...newAccount, fields: Type.Optional(NewUserFieldsInput) });
export const PasskeySignUpBody = Closed({ ceremony: Ceremony, credential: Created });
export const AddBody = Closed({ ceremony: Ceremony, credential: Created, name: Type.Optional(DisplayName) });
export const RenameBody = Closed({ id: Id, name: DisplayName });
export const RemovalBody = Closed({ id: Id, password: Type.Optional(PasswordInput) });

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
