import { type Static, type TObject, Type } from 'typebox';
import { option } from '../../core/config/options.js';
import { mustBe } from '../../core/config/validation-messages.js';
import {
  Closed,
  CodeChallenge,
  DisplayName,
  Envelope,
  Nullable,
  Timestamp,
} from '../../core/http/schemas.js';
import { ReturnTo } from '../../core/outbound/provider-sign-in.js';

const Credential = Type.String({ minLength: 1, maxLength: 1024, pattern: '^[\\x21-\\x7e]+$' });

/** A provider that users can sign in with. */
export const ProviderConfiguration = Closed({
  /** The issuer of an OpenID provider. `google` and `github` need none. */
  issuer: Type.Optional(
    Type.String({
      accepts: 'the https address of an OpenID provider',
      examples: ['https://id.example.com'],
      pattern: '^https?://[^\\s?#]+$',
      maxLength: 500,
    }),
  ),
  clientId: Credential,
  clientSecret: Type.Optional(Credential),
  /** As users see it. Default: Google, GitHub or the key. */
  label: Type.Optional(DisplayName),
  /** Default: `openid email profile`. */
  scope: Type.Optional(Type.String({ pattern: '^[\\x21-\\x7e]+( [\\x21-\\x7e]+)*$', maxLength: 500 })),
  /** Whether every address that the provider states is verified, also without `email_verified`. Default: false. */
  trustEmail: Type.Optional(Type.Boolean()),
  /** How the provider returns its response. Default: in the address. */
  responseMode: Type.Optional(Type.Literal('form_post')),
  /** Whether its id_tokens have a nonce. Default: as its metadata suggest. */
  nonce: Type.Optional(Type.Boolean()),
  /** The address of a GitHub Enterprise server. */
  url: Type.Optional(Type.String({ pattern: '^https?://[^\\s?#]+$', maxLength: 500 })),
});
export type ProviderConfiguration = Static<typeof ProviderConfiguration>;

const LoginOption = Type.Record(Type.String(), ProviderConfiguration, { maxProperties: 20 });

export const federationOptions = {
  login: option(Type.Optional(LoginOption), {
    env: 'LOGIN_PROVIDERS',
    doc: 'Providers that users can sign in with, by name, as JSON: {"google":{"clientId":"…","clientSecret":"…"},"acme":{"issuer":"https://id.acme.example","clientId":"…","clientSecret":"…"}} (docs/saas/login-providers.md).',
    secret: true,
    parse: parseProviders,
    check: (login) =>
      Object.entries(login ?? {})
        .map(([name, provider]) => providerProblem(name, provider))
        .find((problem) => problem !== undefined),
  }),
};
export type FederationConfiguration = Static<TObject<typeof federationOptions>>;

/** Text that is no JSON is returned unchanged and fails validation. */
function parseProviders(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** The providers that are known by name. */
export const KNOWN_PROVIDERS = {
  google: 'https://accounts.google.com',
  github: 'https://github.com',
} as const;

export const isGitHub = (name: string, { issuer }: ProviderConfiguration): boolean =>
  name === 'github' && issuer === undefined;

const OPENID_ONLY = ['trustEmail', 'responseMode', 'nonce'] as const;

function providerProblem(name: string, provider: ProviderConfiguration): string | undefined {
  if (!/^[a-z][a-z0-9-]{0,31}$/.test(name))
    return 'must name each provider with lower-case letters, digits and hyphens, like acme.';
  if (provider.issuer === undefined && !Object.hasOwn(KNOWN_PROVIDERS, name))
    return `needs an issuer for ${name}: ${mustBe(ProviderConfiguration.properties.issuer, undefined)}.`;
  if (provider.url !== undefined && !isGitHub(name, provider))
    return `has a url for ${name}, which only github can have.`;
  const unusable = isGitHub(name, provider) && OPENID_ONLY.find((field) => provider[field] !== undefined);
  if (unusable) return `has ${unusable} for ${name}, which only an OpenID provider can have.`;
  if (provider.clientSecret === undefined && isGitHub(name, provider))
    return 'needs a clientSecret for github.';
  return undefined;
}

/** The providers whose addresses are not https, which production refuses. */
export const insecureProviders = ({ login = {} }: FederationConfiguration): string[] =>
  Object.entries(login)
    .filter(([, { issuer, url }]) => [issuer, url].some((address) => address?.startsWith('http:')))
    .map(([name]) => name);

const Name = Type.String({ accepts: 'the name of a provider', pattern: '^[a-z][a-z0-9-]{0,31}$' });
export const ProviderParams = Type.Object({ provider: Name });

/** A response that a provider submits as a form. */
export const ResponseForm = Type.Object(
  { code: Type.Optional(Type.String()), state: Type.Optional(Type.String()) },
  { additionalProperties: Type.String() },
);

export const StartQuery = Closed({
  returnTo: ReturnTo,
  codeChallenge: CodeChallenge,
  prompt: Type.Optional(
    Type.Literal('login', { description: 'The provider asks the person to sign in again.' }),
  ),
  loginHint: Type.Optional(
    Type.String({ maxLength: 254, pattern: '^[^\\p{Cc}\\p{Cs}]*$', accepts: 'a user name' }),
  ),
});
export type StartQuery = Static<typeof StartQuery>;

export const ProvidersAnswer = Envelope(
  Type.Object({ providers: Type.Array(Type.Object({ name: Type.String(), label: Type.String() })) }),
);

const IdentityView = Type.Object({
  id: Type.String(),
  provider: Type.String(),
  label: Type.String(),
  email: Nullable(Type.String()),
  connectedAt: Timestamp,
});
export type IdentityView = Static<typeof IdentityView>;

export const IdentitiesAnswer = Envelope(Type.Object({ identities: Type.Array(IdentityView) }));
export const IdentityAnswer = Envelope(IdentityView);
export const IdentityParams = Type.Object({
  id: Type.String({ accepts: 'the id of a connected provider', pattern: '^[\\w-]{1,100}$' }),
});
