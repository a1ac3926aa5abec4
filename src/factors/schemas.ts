import type { Static, TObject } from 'typebox';
import { Type } from 'typebox';
import { option } from '../config/options.js';
import { secretWeakness } from '../kernel/secrets.js';

const strongKey = (secret: string) => secretWeakness(secret, 32);

/** @param prefix of the environment variables */
export const factorOptions = (prefix: string) => ({
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
});
export type FactorConfiguration = Static<TObject<ReturnType<typeof factorOptions>>>;
