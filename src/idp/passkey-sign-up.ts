import type { PasskeySignUp } from '../oidc/directory.js';
import type { PasskeyModule } from '../passkeys/module.js';
import { idOfSignUp, type Principals } from '../provisioning/principals.js';

/**
 * Creates people with a passkey and without a password. The passkey is stored first: after a crash in between, nobody has
 * the user name, and the passkey belongs to no account.
 */
export function createPasskeySignUp(
  { service, script }: PasskeyModule,
  principals: Pick<Principals, 'registerWithPasskey'>,
): PasskeySignUp {
  return {
    script,
    creationOptions: (form) => service.firstCreationOptions(idOfSignUp(form), form),
    async create({ form, credential, ...person }, from) {
      const id = idOfSignUp(form);
      const device = [from.browser?.(), from.system?.()].filter((part) => part !== undefined).join(', ');
      const isAdded = await service.add(id, { form, credential, name: device || 'Passkey' }, from);
      if (!isAdded) return null;
      return principals.registerWithPasskey({ id, ...person }, from).catch(async (error: unknown) => {
        await service.forget(id);
        throw error;
      });
    },
  };
}
