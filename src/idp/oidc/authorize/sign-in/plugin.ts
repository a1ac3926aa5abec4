import type { FastifyTypebox } from '../../../../core/http/routes.js';
import type { SignInServices } from './forms.js';
import { passkeyPlugin } from './passkey.js';
import { passkeySignUpPlugin } from './passkey-sign-up.js';
import { passwordPlugin } from './password.js';
import { secondFactorPlugin } from './second-factor.js';
import { signUpPlugin } from './sign-up.js';

/** The steps that prove who a person is, before the question what an application may have. */
export async function signInPlugin(fastify: FastifyTypebox, services: SignInServices): Promise<void> {
  const { secondFactor, passkeys, passkeySignUp } = services;
  await fastify.register(passwordPlugin, services);
  await fastify.register(signUpPlugin, services);
  if (secondFactor) await fastify.register(secondFactorPlugin, { ...services, secondFactor });
  if (passkeys) await fastify.register(passkeyPlugin, { ...services, passkeys });
  if (passkeySignUp) await fastify.register(passkeySignUpPlugin, { ...services, passkeySignUp });
}
