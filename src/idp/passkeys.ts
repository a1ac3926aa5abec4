import { AppError } from '../core/kernel/errors.js';
import type { ModuleContext } from '../core/server/module-context.js';
import type { PasskeyModuleOptions } from '../shared/passkeys/module.js';
import type { PasskeyService } from '../shared/passkeys/service.js';
import type { PasskeySignUp } from './oidc/directory.js';
import type { IdpConfiguration } from './options.js';
import { idOfSignUp, type Principals } from './provisioning/principals.js';

/** The passkeys of people, and the script of the pages that use them. */
export type PasskeysOfPeople = PasskeyService & { script: string };

/** Loads passkeys if they are enabled. */
export async function openPasskeys(
  context: ModuleContext,
  { passkeys }: IdpConfiguration,
  options: PasskeyModuleOptions,
): Promise<PasskeysOfPeople | undefined> {
  if (!passkeys) return undefined;
  const { createPasskeyModule, readPasskeyScript } = await import('../shared/passkeys/module.js');
  return { ...createPasskeyModule(context, options).service, script: readPasskeyScript() };
}

/**
 * Creates people with a passkey and without a password. The passkey is stored first: after a crash in between, nobody has
 * the user name, and the passkey belongs to no account.
 */
export function createPasskeySignUp(
  { script, ...service }: PasskeysOfPeople,
  principals: Pick<Principals, 'registerWithPasskey'>,
): PasskeySignUp {
  return {
    script,
    creationOptions: (form) =>
      // The page fills in the user name.
      service.firstCreationOptions({ id: idOfSignUp(form), handle: '' }, form),
    async create({ form, credential, ...person }, from) {
      const id = idOfSignUp(form);
      const device = [from.browser?.(), from.system?.()].filter((part) => part !== undefined).join(', ');
      const isAdded = await service.add(id, { form, credential, name: device || 'Passkey' }, from);
      if (!isAdded) return null;
      return principals.registerWithPasskey({ id, ...person }, from).catch(async (error: unknown) => {
        // After an outage of the store, the account may exist.
        if (error instanceof AppError) await service.forget(id);
        throw error;
      });
    },
  };
}
