import type { Scope } from '../../../../core/http/scope.js';
import type { PasskeySignUp, SecondFactor, SignInPasskeys } from '../../directory.js';
import { type PasskeyPluginOptions, passkeyPlugin } from './passkey.js';
import { type PasskeySignUpPluginOptions, passkeySignUpPlugin } from './passkey-sign-up.js';
import { type PasswordPluginOptions, passwordPlugin } from './password.js';
import { type SecondFactorPluginOptions, secondFactorPlugin } from './second-factor.js';
import { type SignUpPluginOptions, signUpPlugin } from './sign-up.js';

type Configured = 'secondFactor' | 'passkeys' | 'passkeySignUp';

export type SignInPluginOptions = PasswordPluginOptions &
  SignUpPluginOptions &
  Omit<SecondFactorPluginOptions & PasskeyPluginOptions & PasskeySignUpPluginOptions, Configured> & {
    /** Absent if it is not configured. */
    secondFactor: SecondFactor | undefined;
    /** Absent if they are not configured. */
    passkeys: SignInPasskeys | undefined;
    /** Absent if passkeys are not configured. */
    passkeySignUp: PasskeySignUp | undefined;
  };

/** The steps that prove who a person is, before the question what an application may have. */
export async function signInPlugin(scope: Scope, options: SignInPluginOptions): Promise<void> {
  const { secondFactor, passkeys, passkeySignUp } = options;
  await scope.register(passwordPlugin, options);
  await scope.register(signUpPlugin, options);
  if (secondFactor) await scope.register(secondFactorPlugin, { ...options, secondFactor });
  if (passkeys) await scope.register(passkeyPlugin, { ...options, passkeys });
  if (passkeySignUp) await scope.register(passkeySignUpPlugin, { ...options, passkeySignUp });
}
