import { type TProperties, Type } from 'typebox';

const Password = Type.String({ maxLength: 4096, writeOnly: true });

/** The body of a form; `form` proves that a page of this session contained it. */
const formOf = <Fields extends TProperties>(fields: Fields) =>
  Type.Object(
    { form: Type.String({ maxLength: 128, writeOnly: true }), ...fields },
    { additionalProperties: false },
  );

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

export const EmptyBody = formOf({});

const Code = Type.String({ maxLength: 64, writeOnly: true });

export const CodeBody = formOf({ code: Code });

export const FactorRemovalBody = formOf({ code: Code, password: Password });

export const DeletionBody = formOf({ confirm: Type.String({ maxLength: 1024 }), password: Password });

/** What the previous form did, and the sentence that confirms it. */
export const NOTICES = {
  renamed: 'account.done.renamed',
  'session-ended': 'account.done.session-ended',
  'sessions-ended': 'account.done.sessions-ended',
  disconnected: 'account.done.disconnected',
  'factor-removed': 'account.done.factor-removed',
  'link-sent': 'account.done.link-sent',
  'address-confirmed': 'account.done.address-confirmed',
} as const;
export type Notice = keyof typeof NOTICES;

export const AccountQuery = Type.Object({
  done: Type.Optional(Type.String({ accepts: 'the name of a notice', maxLength: 64, pattern: '^[a-z-]*$' })),
});
