import { MINUTE, SECOND } from '../../core/kernel/clock.js';
import type { Job } from '../../core/ops/jobs.js';
import { pagesOf } from '../../core/storage/pages.js';
import type { EndpointDocument, WebhookDependencies } from './store.js';

const INTERVAL_MS = 10 * MINUTE;

/** Encrypts with the current key what another key has encrypted, and removes previous secrets that no longer sign. */
export function createEncryptionJob({ endpoints, encryption, clock }: WebhookDependencies): Job {
  const renew = async ({
    id,
    version,
    secret,
    previousSecret,
    previousSecretUntil = 0,
  }: EndpointDocument): Promise<void> => {
    const isOver = previousSecret !== undefined && previousSecretUntil <= clock.now();
    const secrets = { secret, ...(previousSecret !== undefined && !isOver && { previousSecret }) };
    const outdated = Object.entries(secrets).filter(([, text]) => !encryption.isCurrent(id, text));
    if (outdated.length === 0 && !isOver) return;
    const set = Object.fromEntries(
      outdated.map(([field, text]) => [field, encryption.encrypt(id, encryption.decrypt(id, text))]),
    );
    const unset = isOver ? (['previousSecret', 'previousSecretUntil'] as const) : [];
    await endpoints.updateOne({ id, version }, { set, unset });
  };

  return {
    everySeconds: INTERVAL_MS / SECOND,
    async run({ signal }) {
      const failures: unknown[] = [];
      for await (const items of pagesOf(endpoints, { sort: 'createdAt' })) {
        for (const endpoint of items) {
          if (signal.aborted) return;
          // One that cannot be decrypted does not keep the others from being encrypted.
          await renew(endpoint).catch((error: unknown) => failures.push(error));
        }
      }
      if (failures.length > 0) throw failures[0];
    },
  };
}
