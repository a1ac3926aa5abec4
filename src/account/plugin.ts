import formbody from '@fastify/formbody';
import { access, type Scope } from '../http/scope.js';
import { type DeletionOptions, deletionPlugin } from './deletion.js';
import type { SignIn } from './guard.js';
import { type AccountPageOptions, accountPagePlugin } from './page.js';
import { passkeysPlugin } from './passkeys.js';
import { type PasswordOptions, passwordPlugin } from './password.js';
import { secondFactorPlugin } from './second-factor.js';
import type { AccountService, Passkeys, SecondFactors } from './service.js';

export interface AccountPluginOptions extends AccountPageOptions, DeletionOptions, PasswordOptions {
  service: AccountService;
  signIn: SignIn;
  /** Absent if they are not configured. */
  factors: SecondFactors | undefined;
  /** Absent if they are not configured. */
  passkeys: Passkeys | undefined;
  /** The path of the issuer, which includes what a proxy adds. */
  mount(): string;
  /** Whether there are more pages than the one for the password. */
  hasAccountPages: boolean;
}

const FORM_LIMIT_BYTES = 16 * 1024;

/** The pages on which people manage their own accounts. */
export async function accountPlugin(scope: Scope, options: AccountPluginOptions): Promise<void> {
  await scope.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  await scope.register(passwordPlugin, options);
  if (!options.hasAccountPages) return;
  await scope.register(accountPagePlugin, options);
  await scope.register(deletionPlugin, options);
  const { factors, passkeys } = options;
  if (factors) await scope.register(secondFactorPlugin, { ...options, factors });
  if (passkeys) await scope.register(passkeysPlugin, { ...options, passkeys });
  await scope.register(entrancePlugin, options);
}

/** The ways to these pages. */
async function entrancePlugin(scope: Scope, { signIn, mount }: AccountPluginOptions): Promise<void> {
  const config = access('public', { page: true });

  scope.get('/', { config }, (_request, reply) => reply.redirect(`${mount()}/account`, 302));

  // Password managers open it (W3C: A Well-Known URL for Changing Passwords).
  scope.get('/.well-known/change-password', { config }, (_request, reply) =>
    reply.redirect(`${mount()}/account/password`, 302),
  );

  scope.get('/account/sign-up', { config }, (request, reply) =>
    signIn.sendSignUp(request, reply, { returnTo: '/account', name: 'the account page' }),
  );
}
