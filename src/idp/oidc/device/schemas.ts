import { Type } from 'typebox';
import { Closed, Token } from '../../../core/http/schemas.js';

/** The response to a device (RFC 8628 §3.2). */
export const DeviceAuthorizationResponse = Type.Object({
  device_code: Token,
  user_code: Type.String({ description: 'The device shows it: eight letters and a hyphen.' }),
  verification_uri: Type.String(),
  verification_uri_complete: Type.String({ description: 'The same with the code, for a QR code.' }),
  expires_in: Type.Integer(),
  interval: Type.Integer({ description: 'Seconds to wait between two requests to /token.' }),
});

/** Longer than every code with separators. */
const TypedCode = Type.String({ accepts: 'a code of eight letters', maxLength: 64 });

const FormToken = Type.String({ maxLength: 100, writeOnly: true });

export const DeviceQuery = Type.Object({ user_code: Type.Optional(TypedCode) });

export const DeviceCodeBody = Closed({ form: FormToken, user_code: TypedCode });

export const DeviceConfirmationBody = Closed({
  form: FormToken,
  user_code: TypedCode,
  decision: Type.Enum(['allow', 'deny']),
});
