import type { Messages } from '../core/http/messages.js';
import type { Scope } from '../core/http/scope.js';
import type { ModuleContext } from '../core/server/module-context.js';
import type { PasskeyFlows } from '../shared/passkeys/flows.js';
import type { PasskeyModuleOptions } from '../shared/passkeys/module.js';
import type { PasskeyService } from '../shared/passkeys/service.js';
import type { AuthModule } from './auth/module.js';
import { SignInAnswer } from './auth/schemas.js';
import type { SignedIn } from './auth/sign-in/sign-in.js';
import { namedOrigins, type SaasConfiguration, sealingSecrets } from './options.js';

/** The passkeys of users, for the other domains. */
export interface SaasPasskeys {
  service: PasskeyService;
  flows: PasskeyFlows<SignedIn>;
  /** Whether the user can sign in without a passkey. */
  hasOtherLogin(userId: string): Promise<boolean>;
  /** Reads the script of the pages that use them. */
  readScript(): string;
  plugin(scope: Scope): Promise<void>;
}

export interface PasskeyOptions extends Pick<PasskeyModuleOptions, 'address' | 'name'> {
  values: SaasConfiguration;
  auth: AuthModule;
  messages: Pick<Messages, 'negotiate'>;
  /** Whether the user can sign in at another provider, which is not being removed. */
  hasIdentities(userId: string): Promise<boolean>;
}

/** Loads passkeys if they are enabled. */
export async function openPasskeys(
  context: ModuleContext,
  { values, auth, messages, hasIdentities, ...options }: PasskeyOptions,
): Promise<SaasPasskeys | undefined> {
  if (!values.passkeys) return undefined;
  const { createPasskeyModule, createPasskeyApi, readPasskeyScript } = await import(
    '../shared/passkeys/module.js'
  );
  const { service } = createPasskeyModule(context, {
    ...options,
    origins: namedOrigins(values),
    announce: (change, userId, from) => auth.announcePasskey(userId, change, from),
  });
  const { federated, passkey, proveOwner } = auth.service;
  const hasOtherLogin = async (userId: string): Promise<boolean> =>
    values.emailLogin || (await federated.hasPassword(userId)) || (await hasIdentities(userId));
  const { flows, plugin } = createPasskeyApi(context, {
    service,
    accounts: { ...passkey, proveOwner, hasOtherLogin },
    secrets: sealingSecrets(values),
    signInAnswer: SignInAnswer,
    messages,
  });
  return { service, flows, hasOtherLogin, readScript: readPasskeyScript, plugin };
}
