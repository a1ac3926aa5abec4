import { type TProperties, Type } from 'typebox';
import { type Localized, message } from '../../core/http/messages.js';
import { Closed } from '../../core/http/schemas.js';

const Password = Type.String({ maxLength: 4096, writeOnly: true });

/** The body of a form; `form` proves that a page of this session contained it. */
const formOf = <Fields extends TProperties>(fields: Fields) =>
  Closed({ form: Type.String({ maxLength: 128, writeOnly: true }), ...fields });

export const PasswordBody = formOf({
  current_password: Password,
  password: Password,
  password_confirm: Password,
});

export const NameBody = formOf({ name: Type.String({ maxLength: 1024 }) });

export const SessionBody = formOf({
  sid: Type.String({ accepts: 'the ID of a session', maxLength: 64, pattern: '^[\\w-]+$' }),
});

export const ApplicationBody = formOf({
  client_id: Type.String({ accepts: 'a client ID', maxLength: 64, pattern: '^[\\w-]+$' }),
});

export const DelegationBody = formOf({
  delegation: Type.String({ accepts: 'the ID of a delegation', maxLength: 64, pattern: '^[\\w-]+$' }),
});

export const AgentBody = formOf({
  agent: Type.String({ accepts: 'the ID of an agent', maxLength: 64, pattern: '^[\\w-]+$' }),
});

export const ReceiptParams = Type.Object({
  txn: Type.String({ accepts: 'the txn of a token', maxLength: 64, pattern: '^[\\w-]+$' }),
});

export const EmptyBody = formOf({});

const Code = Type.String({ maxLength: 64, writeOnly: true });

export const CodeBody = formOf({ code: Code });

/** Absent in the forms of people without a password. */
const OwnPassword = Type.Optional(Password);

export const FactorRemovalBody = formOf({ code: Code, password: OwnPassword });

const Credential = Type.String({
  accepts: 'the credential that the browser has created, as JSON',
  maxLength: 8 * 1024,
  writeOnly: true,
});

export const PasskeyBody = formOf({ credential: Credential, name: Type.String({ maxLength: 1024 }) });

const PasskeyId = Type.String({ accepts: 'the ID of a passkey', maxLength: 1364, pattern: '^[\\w-]+$' });

export const PasskeyNameBody = formOf({ id: PasskeyId, name: Type.String({ maxLength: 1024 }) });

export const PasskeyRemovalBody = formOf({ id: PasskeyId });

export const DeletionBody = formOf({ confirm: Type.String({ maxLength: 1024 }), password: OwnPassword });

/** What the previous form did, and the sentence that confirms it. */
export const NOTICES = {
  renamed: 'account.done.renamed',
  'details-saved': 'account.done.details-saved',
  'password-changed': 'account.done.password-changed',
  'address-link-sent': 'account.done.address-link-sent',
  'session-ended': 'account.done.session-ended',
  'sessions-ended': 'account.done.sessions-ended',
  disconnected: 'account.done.disconnected',
  'delegation-ended': 'account.done.delegation-ended',
  'agent-stopped': 'account.done.agent-stopped',
  'factor-removed': 'account.done.factor-removed',
  'passkey-added': 'account.done.passkey-added',
  'passkey-renamed': 'account.done.passkey-renamed',
  'passkey-removed': 'account.done.passkey-removed',
  'link-sent': 'account.done.link-sent',
  'address-confirmed': 'account.done.address-confirmed',
} as const;
export type Notice = keyof typeof NOTICES;

/** What confirms the previous form; empty without one. */
export function noticeIn({ done }: { done?: string | undefined }): { notice?: Localized } {
  const [, sentence] = Object.entries(NOTICES).find(([notice]) => notice === done) ?? [];
  return sentence ? { notice: message(sentence) } : {};
}

export const AccountQuery = Type.Object({
  done: Type.Optional(Type.String({ accepts: 'the name of a notice', maxLength: 64, pattern: '^[a-z-]*$' })),
});
