import type { Static, TObject } from 'typebox';
import { Type } from 'typebox';
import type { Report } from '../../core/config/configuration-error.js';
import { option } from '../../core/config/options.js';
import { secretWeakness } from '../../core/kernel/secrets.js';

const strongKey = (secret: string) => secretWeakness(secret, 32);

/** Who must have a second factor. */
const POLICIES = {
  optional: 'nobody',
  operators: 'operators of the console',
  required: 'every person',
} as const;
type Policy = keyof typeof POLICIES;

/** @param prefix of the environment variables @param policies those that apply to the product */
export const factorOptions = <const P extends Policy>(
  prefix: string,
  policies: readonly ['optional', ...P[]],
) => ({
  factorEncryptionKey: option(Type.Optional(Type.String()), {
    env: `${prefix}FACTOR_ENCRYPTION_KEY`,
    doc: 'Secret that encrypts second factors in the store, at least 32 random bytes in production. Without it, nobody can have a second factor.',
    secret: true,
    safe: strongKey,
  }),
  factorEncryptionKeyPrevious: option(Type.Optional(Type.String()), {
    env: `${prefix}FACTOR_ENCRYPTION_KEY_PREVIOUS`,
    doc: 'Previous secret, used only to decrypt second factors.',
    secret: true,
    safe: strongKey,
  }),
  secondFactor: option(Type.Enum([...policies], { default: 'optional' as const }), {
    env: `${prefix}SECOND_FACTOR`,
    doc: `Who must have a second factor: ${policies.map((policy) => `${policy} (${POLICIES[policy]})`).join(', ')}. Sign-in then sets it up.`,
  }),
  secondFactorGraceDays: option(Type.Integer({ minimum: 0, maximum: 365, default: 7 }), {
    env: `${prefix}SECOND_FACTOR_GRACE_DAYS`,
    doc: 'Days that a person has to set up the second factor, from the first sign-in for which it is required. A lower number applies to everyone at once.',
  }),
});
export type FactorConfiguration = Static<TObject<ReturnType<typeof factorOptions<Policy>>>>;

/** Refuses a rule that no user could fulfil. @param prefix of the environment variables */
export function refusePolicyWithoutKey(
  {
    secondFactor,
    factorEncryptionKey,
  }: Pick<FactorConfiguration, 'factorEncryptionKey'> & { secondFactor: Policy },
  prefix: string,
  report: Report,
): void {
  // An unknown rule is reported already.
  const isRule = secondFactor !== 'optional' && Object.hasOwn(POLICIES, secondFactor);
  if (!isRule || factorEncryptionKey !== undefined) return;
  report.refuse(
    `${prefix}SECOND_FACTOR=${secondFactor} requires ${prefix}FACTOR_ENCRYPTION_KEY.`,
    `Set ${prefix}FACTOR_ENCRYPTION_KEY: openssl rand -base64 48`,
  );
}
