import { Type } from 'typebox';
import { Closed, Token } from '../../../core/http/schemas.js';

/** The response to an agent (CIBA §7.3). */
export const ApprovalResponse = Type.Object({
  auth_req_id: Token,
  expires_in: Type.Integer(),
  interval: Type.Integer({ description: 'Seconds to wait between two requests to /token.' }),
});

export const ApprovalParams = Type.Object({
  request: Type.String({ accepts: 'the ID of a request', maxLength: 40 }),
});

export const ApprovalDecisionBody = Closed({
  form: Type.String({ maxLength: 100, writeOnly: true }),
  decision: Type.Enum(['allow', 'deny']),
});
