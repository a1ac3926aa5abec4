import { createHmac } from 'node:crypto';
import { newId, newToken } from '../../../core/kernel/secrets.js';
import { nullIfTaken } from '../../../core/storage/collection.js';
import type { BillingContext } from '../context.js';
import { listSubscriptions, type TrialDocument } from '../store.js';

/**
 * One trial for each person, also in parallel checkouts and after the deletion of an account. A trial belongs to one
 * checkout at a time, the newest one, and is used once that checkout was paid: an abandoned checkout does not use it.
 */
export type Trials = ReturnType<typeof createTrials>;

export function createTrials(context: BillingContext) {
  const { trials, keys, checkouts, subscriptions, owners, commit, gateway, clock, random } = context;
  const newRev = () => newId('rev_', clock, random);

  let loadedKey: string | undefined;
  const loadKey = async (): Promise<string> => {
    const created = { id: 'trial', key: newToken(random) };
    const stored = await keys.findOne({ id: created.id });
    if (stored) return stored.key;
    const inserted = await keys.insert(created).then(() => created, nullIfTaken);
    return inserted?.key ?? loadKey();
  };
  const fingerprintOf = async (email: string): Promise<string> => {
    loadedKey ??= await loadKey();
    return createHmac('sha256', loadedKey).update(normalizeAddress(email)).digest('base64url');
  };

  const hadTrial = async (ownerId: string): Promise<boolean> =>
    (await listSubscriptions(subscriptions, ownerId)).some(({ trialEnd }) => trialEnd !== undefined);

  /** Whether the checkout that has the trial was paid. Another checkout ends its session. */
  const isUsed = async ({ ownerId, checkoutId = '' }: TrialDocument, isOwn: boolean): Promise<boolean> => {
    if (ownerId !== undefined && (await hadTrial(ownerId))) return true;
    const sessionId = (await checkouts.findOne({ id: checkoutId }))?.sessionId;
    if (sessionId === undefined || !gateway) return false;
    const session = isOwn
      ? await gateway.checkoutSession(sessionId)
      : await gateway.expireCheckout(sessionId);
    return session?.['status'] === 'complete';
  };

  const markUsed = async ({ id, rev }: Pick<TrialDocument, 'id' | 'rev'>): Promise<boolean> => {
    const set = { usedAt: clock.now(), rev: newRev() };
    return (await trials.updateOne({ id, rev }, { set, unset: ['ownerId', 'checkoutId'] })) !== null;
  };

  return {
    /** Moves the trial to a checkout, and expires the session of the previous one. False if the trial was used. */
    async claim({ id: ownerId, email }: { id: string; email: string }, checkoutId: string): Promise<boolean> {
      if (await hadTrial(ownerId)) return false;
      const id = await fingerprintOf(email);
      for (;;) {
        const known = await trials.findOne({ id });
        if (known?.usedAt !== undefined) return false;
        const isOwn = known?.checkoutId === checkoutId;
        if (known && (await isUsed(known, isOwn))) {
          if (await markUsed(known)) return false;
          continue;
        }
        if (isOwn) return true;
        const claimed = { ownerId, checkoutId, rev: newRev() };
        const claiming = known
          ? trials.changing({ id, rev: known.rev }, { set: claimed })
          : trials.inserting({ id, ...claimed });
        const locking = owners.locking({ id: ownerId });
        const outcome = await commit([claiming, locking]).catch(nullIfTaken);
        if (outcome?.committed) return true;
        // The account is being deleted.
        if (outcome?.unmet === locking) return false;
      }
    },

    /** Whether the trial still belongs to the checkout, whose session is stored by now. */
    async confirm(email: string, checkoutId: string): Promise<boolean> {
      const id = await fingerprintOf(email);
      for (;;) {
        const known = await trials.findOne({ id });
        if (known?.checkoutId !== checkoutId) return false;
        // The new revision makes a parallel claim fail that has not seen the session.
        if (await trials.updateOne({ id, rev: known.rev }, { set: { rev: newRev() } })) return true;
      }
    },

    /** Before an account is deleted: of a trial that was used, the fingerprint of the address remains. */
    async settle(ownerId: string) {
      for (;;) {
        const known = await trials.findOne({ ownerId });
        if (!known) break;
        if (await isUsed(known, true)) await markUsed(known);
        else await trials.deleteOne({ id: known.id, rev: known.rev });
      }
      const user = (await hadTrial(ownerId)) ? await owners.find(ownerId) : null;
      if (!user) return;
      // The address may have changed since, or the trial may have begun without a checkout of this server.
      const id = await fingerprintOf(user.email);
      await trials.insert({ id, rev: newRev(), usedAt: clock.now() }).catch(nullIfTaken);
    },

    /** Deletes what names the user. */
    async forget(ownerId: string) {
      await trials.deleteMany({ ownerId });
    },
  };
}

/** Addresses of one mailbox: without a tag, and without the dots that Gmail ignores. */
function normalizeAddress(email: string): string {
  const [local = '', host = ''] = email.toLowerCase().split('@');
  const [mailbox = ''] = local.split('+');
  const isGmail = host === 'gmail.com' || host === 'googlemail.com';
  return isGmail ? `${mailbox.replaceAll('.', '')}@gmail.com` : `${mailbox}@${host}`;
}
