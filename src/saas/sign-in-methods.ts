import type { Messages } from '../core/http/messages.js';
import { DAY } from '../core/kernel/clock.js';
import { refuseMissingKey } from '../shared/factors/store.js';
import { contributePasskeys } from '../shared/passkeys/store.js';
import type { ChangeMails } from './auth/mails.js';
import type { AuthModule } from './auth/module.js';
import { SignInAnswer } from './auth/schemas.js';
import { registerChallengeKind } from './auth/sessions/jwt.js';
import type { SaasBase } from './base.js';
import { contributeIdentities } from './login-providers/store.js';

/** The ways to sign in beside a password. Each is loaded if it is configured. */

export type SaasSecondFactors = NonNullable<Awaited<ReturnType<typeof openSecondFactors>>>;

/** @throws ConfigurationError without a key, if users have second factors */
export async function openSecondFactors(
  { fastify, context, values, mount }: SaasBase,
  { issuer, changeMails }: { issuer(): string; changeMails: ChangeMails },
) {
  const { factorEncryptionKey: key, factorEncryptionKeyPrevious: previous } = values;
  if (key === undefined) {
    await refuseMissingKey(context.store, { program: 'saas-backend', variable: 'FACTOR_ENCRYPTION_KEY' });
    return undefined;
  }
  const { createFactorModule } = await import('../shared/factors/module.js');
  const { service } = createFactorModule(context, {
    keys: previous === undefined ? [key] : [key, previous],
    issuer,
    announce: async (kind, userId, version, source) => {
      await context.commit([await changeMails.secondFactor({ kind, version }, userId, source)]);
    },
  });
  const isRequired = values.secondFactor === 'required';
  const graceMs = values.secondFactorGraceDays * DAY;
  return {
    service,
    /** For the sign-in. */
    option: {
      service: {
        ...service,
        requiredFrom: async (userId: string) => (isRequired ? service.requiredFrom(userId, graceMs) : null),
      },
      challengeTokens: await registerChallengeKind(fastify, mount, values),
    },
  };
}

export async function openEmailLogin(
  { context, values, secrets }: SaasBase,
  { messages }: { messages: Messages },
) {
  if (!values.emailLogin) return undefined;
  const { createEmailLoginModule } = await import('./auth/sign-in/email-login-module.js');
  return createEmailLoginModule(context, { messages, secrets });
}

export async function openLoginProviders(
  { context, config, values, publicUrl, apiUrl, secrets, origins }: SaasBase,
  { auth, changeMails, messages }: { auth: AuthModule; changeMails: ChangeMails; messages: Messages },
) {
  contributeIdentities(context);
  const { login: providers } = values;
  if (providers === undefined || Object.keys(providers).length === 0) return undefined;
  const { createLoginProvidersModule } = await import('./login-providers/module.js');
  return createLoginProvidersModule(context, {
    providers,
    accounts: {
      ...auth.service.federated,
      announce: changeMails.identity,
      hasOtherLogin: (userId) => context.signInMethods.hasOther('identity', userId),
    },
    signInResponse: SignInAnswer,
    secrets,
    publicUrl,
    apiUrl,
    origins,
    allowHttp: !config.production,
    messages,
  });
}

export type SaasPasskeys = NonNullable<Awaited<ReturnType<typeof openPasskeys>>>;

export async function openPasskeys(
  { context, values, publicUrl, secrets, origins }: SaasBase,
  {
    auth,
    changeMails,
    messages,
    name,
  }: { auth: AuthModule; changeMails: ChangeMails; messages: Messages; name(): string },
) {
  contributePasskeys(context);
  if (!values.passkeys) return undefined;
  const { createPasskeyModule, createPasskeyApi, readPasskeyScript } = await import(
    '../shared/passkeys/module.js'
  );
  const { service } = createPasskeyModule(context, {
    address: publicUrl,
    name,
    origins,
    announce: async (change, userId, source) => {
      await context.commit([await changeMails.passkey(change, userId, source)]);
    },
  });
  const { passkey, proveOwner } = auth.service;
  const hasOtherLogin = (userId: string) => context.signInMethods.hasOther('passkey', userId);
  const { flows, plugin } = createPasskeyApi(context, {
    service,
    accounts: { ...passkey, proveOwner, hasOtherLogin },
    secrets,
    signInResponse: SignInAnswer,
    messages,
  });
  return {
    service,
    flows,
    /** Whether the user can sign in without a passkey. */
    hasOtherLogin,
    /** Reads the script of the pages that use them. */
    readScript: readPasskeyScript,
    plugin,
  };
}
