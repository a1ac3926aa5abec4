import { type TProperties, Type } from 'typebox';
import { After, Closed } from '../../core/http/schemas.js';

/** The body of a form of the account pages; `form` proves that a page of this session contained it. */
export const ownForm = <Fields extends TProperties>(fields: Fields) =>
  Closed({ form: Type.String({ maxLength: 128, writeOnly: true }), ...fields });

// What a person types is checked by the service, so that the form is shown again with the reason.
const Typed = Type.String({
  accepts: 'text without NUL',
  maxLength: 1024,
  pattern: '^[^\\0\\p{Cs}]*$',
});
/** A field that the host has declared. */
export const OptionalTyped = Type.Optional(Typed);
const Password = Type.String({ maxLength: 4096, writeOnly: true });
const Challenge = Type.String({
  accepts: 'the challenge of the form',
  maxLength: 2048,
  pattern: '^[\\w.-]+$',
  writeOnly: true,
});

const returnTo = Type.Optional(
  Type.String({ accepts: 'an address to continue at', maxLength: 2048, pattern: '^[^\\p{Cc}\\p{Cs}]*$' }),
);

const done = Type.Optional(
  Type.String({ accepts: 'the name of a notice', maxLength: 64, pattern: '^[a-z-]*$' }),
);

export const SignInQuery = Type.Object({ return_to: returnTo, done });
export const NoticeQuery = Type.Object({ done });
export const InvitationQuery = Type.Object({
  // Any other text is no invitation.
  token: Type.String({
    accepts: 'the token of an invitation',
    default: '',
    pattern: '^[\\w.-]{0,200}$',
    writeOnly: true,
  }),
});
export const OperatorQuery = Type.Object({
  page: Type.String({
    accepts: 'a page of the admin area',
    default: '',
    maxLength: 2048,
    pattern: '^[^\\p{Cc}\\p{Cs}]*$',
  }),
});
export const BillingQuery = Type.Object({
  done,
  session_id: Type.Optional(
    // Anything else is ignored: the user has paid.
    Type.String({ accepts: 'the ID of a checkout session', maxLength: 255, pattern: '^[^\\p{Cc}\\p{Cs}]*$' }),
  ),
});
export const ReturnQuery = Type.Object({ return_to: returnTo });

export const SignInBody = Closed({ email: Typed, password: Password });
export const CodeBody = Closed({
  interaction: Challenge,
  code: Type.String({ maxLength: 64, writeOnly: true }),
});
export const SignUpBody = Closed({
  email: Typed,
  name: Typed,
  password: Password,
  password_confirm: Password,
});
export const EmailBody = Closed({ email: Typed });

const mailedCode = {
  maxLength: 64,
  pattern: '^[^\\p{Cc}\\p{Cs}]*$',
  accepts: 'the mailed code',
  writeOnly: true,
};
export const MailedCodeQuery = Type.Object({ code: Type.Optional(Type.String(mailedCode)) });
export const MailedCodeBody = Closed({ code: Type.String(mailedCode) });

export const EmptyBody = ownForm({});
export const AddressBody = ownForm({ email: Typed, password: Type.Optional(Password) });

const ProviderName = Type.String({ accepts: 'the name of a provider', maxLength: 64, pattern: '^[\\w-]+$' });
export const ProviderParams = Type.Object({ provider: ProviderName });
export const ProviderBody = ownForm({ provider: ProviderName });
export const ReturnedQuery = Type.Object({
  ticket: Type.Optional(
    Type.String({
      accepts: 'the ticket of a sign-in',
      maxLength: 8192,
      pattern: '^[\\w.~+/=-]+$',
      writeOnly: true,
    }),
  ),
  error: Type.Optional(Type.String({ accepts: 'an error code', maxLength: 64, pattern: '^[a-z_]*$' })),
});
export const IdentityBody = ownForm({
  id: Type.String({ accepts: 'the ID of a connection', maxLength: 128, pattern: '^[\\w-]+$' }),
});

export const ImpersonationQuery = Type.Object({
  user: Type.Optional(Type.String({ accepts: 'the ID of a user', pattern: '^[\\w-]{1,100}$' })),
});
export const ImpersonationForm = ownForm({
  reason: Type.String({
    accepts: 'a reason of at most 500 characters, in one line',
    maxLength: 500,
    pattern: '^[^\\p{Cc}\\p{Cs}]*$',
  }),
});

const Scope = Type.String({ accepts: 'a scope', pattern: '^[\\x21-\\x7e]{1,128}$' });
export const NewKeyBody = ownForm({
  name: Typed,
  // Of checkboxes, a form sends one, several or none.
  scopes: Type.Optional(Type.Union([Scope, Type.Array(Scope, { maxItems: 50 })])),
  days: Type.String({ accepts: 'a number of days, or 0', pattern: '^(30|90|365|0)$' }),
});
export const KeyBody = ownForm({
  id: Type.String({ accepts: 'the ID of a key', pattern: '^key_[0-9a-f]{1,64}$' }),
});

const PriceId = Type.String({
  accepts: 'the ID of a price',
  maxLength: 255,
  pattern: '^[^\\p{Cc}\\p{Cs}]+$',
});
export const PriceBody = ownForm({ price: PriceId });
const SubscriptionId = Type.String({ accepts: 'the ID of a subscription', pattern: '^[A-Za-z0-9_]{1,255}$' });
export const SubscriptionBody = ownForm({ subscription: SubscriptionId });
export const PromotionCodeBody = ownForm({
  subscription: SubscriptionId,
  code: Type.String({ accepts: 'a promotion code', pattern: '^[\\w-]{1,500}$' }),
});
const quantity = Type.Optional(Type.String({ accepts: 'a number of seats', pattern: '^[1-9]\\d{0,5}$' }));
export const CheckoutForm = ownForm({ price: PriceId, quantity });
/** Without a subscription, the only one that the price can replace. */
const change = { price: PriceId, subscription: Type.Optional(SubscriptionId), quantity };
export const ChangeBody = ownForm({ ...change, when: Type.Optional(Type.Literal('period_end')) });
export const ChangeQuery = Type.Object(change);
export const PriceQuery = Type.Object({ price: PriceId });

const Id = Type.String({ accepts: 'an ID', pattern: '^[\\w-]{1,100}$' });
export const OrganizationParams = Type.Object({
  organization: Type.String({ accepts: 'the ID or the slug of an organization', pattern: '^[\\w-]{1,100}$' }),
});
export const OrganizationQuery = Type.Object({ done, after: After, invited: After });
export const OrganizationNameBody = ownForm({ name: Typed });
/** Empty for none. */
export const ChosenOrganizationBody = ownForm({
  organization: Type.String({ accepts: 'the ID of an organization', pattern: '^[\\w-]{0,100}$' }),
});
export const InvitationIdBody = ownForm({ id: Id });
/** The fields that the role of the member permits to change. */
export const OrganizationBody = ownForm({
  name: Type.Optional(Typed),
  slug: Type.Optional(Typed),
  logoUrl: Type.Optional(Typed),
  billingEmail: Type.Optional(Typed),
});
export const MemberBody = ownForm({ user: Id });
export const MemberRoleBody = ownForm({ user: Id, role: Typed });
export const InviteBody = ownForm({ email: Typed, role: Typed });
export const OrganizationDeletionBody = ownForm({ confirm: Typed });

export const PasskeyBody = Closed({
  ceremony: Type.String({
    accepts: 'the ceremony of the form',
    maxLength: 8192,
    pattern: '^[\\w.-]+$',
    writeOnly: true,
  }),
  credential: Type.String({
    accepts: 'the response of the browser, as JSON',
    maxLength: 12 * 1024,
    pattern: '^[^\\p{Cs}]*$',
    writeOnly: true,
  }),
});
