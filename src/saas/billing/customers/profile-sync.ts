import { HOUR, SECOND } from '../../../core/kernel/clock.js';
import type { Job } from '../../../core/ops/jobs.js';
import type { Change } from '../../../core/storage/collection.js';
import type { BillingContext } from '../context.js';
import { isProviderError } from '../errors.js';
import type { Gateway } from '../provider/gateway.js';
import type { CustomerDocument } from '../store.js';

const INTERVAL_SECONDS = 60;
const PAGE_SIZE = 100;

/** The delay before the second attempt, which doubles with each further one. */
const FIRST_RETRY_MS = 30 * SECOND;
const MAX_RETRY_MS = HOUR;

/** While the provider is down, each run makes this number of calls, however many customers are due. */
const MAX_FAILURES_PER_RUN = 3;

/**
 * Sends new addresses and names of users to their customers at the provider. Each change marks the user in the same
 * write, and the mark moves to the customer before it is removed: a crash at any point repeats a step and loses nothing.
 */
export function createProfileSync({ customers, owners, clock, log }: BillingContext, gateway: Gateway): Job {
  /** Marks the customers of changed users. Most users have none. */
  const collectChanges = async (signal: AbortSignal): Promise<void> => {
    for (let isMore = true; isMore && !signal.aborted; ) {
      const changes = await owners.profileChanges.list(PAGE_SIZE);
      for (const { ownerId, changedAt } of changes) {
        await customers.updateMany({ ownerId }, profileChange(clock.now()));
        await owners.profileChanges.acknowledge(ownerId, changedAt);
      }
      isMore = changes.length >= PAGE_SIZE;
    }
  };

  const postpone = ({ id, profileDueAt = 0, profileAttempts = 0 }: CustomerDocument) => {
    const delay = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.min(profileAttempts, 10));
    return customers.updateOne(
      { id, profileDueAt },
      { set: { profileDueAt: clock.now() + delay, profileAttempts: profileAttempts + 1 } },
    );
  };

  /** Stops until the next change: the provider would reject the same values again. */
  const reject = async (
    { id, ownerId, profileDueAt = 0 }: CustomerDocument,
    reason: string,
  ): Promise<void> => {
    const rejected = await customers.updateOne(
      { id, profileDueAt },
      {
        set: { profileRejectedAt: clock.now(), profileRejection: reason },
        unset: ['profileDueAt', 'profileAttempts'],
      },
    );
    if (rejected)
      log.warn(
        { ownerId, customer: id, reason },
        'the payment provider rejects the address or the name of a customer',
      );
  };

  /** Sends the current values. False if the provider failed. */
  const push = async (customer: CustomerDocument): Promise<boolean> => {
    const { id, ownerId, profileDueAt = 0 } = customer;
    const sent = await owners.find(ownerId);
    try {
      const { rejection } = sent
        ? await gateway.updateCustomer(id, { email: sent.email, name: sent.name })
        : {};
      if (rejection !== undefined) {
        await reject(customer, rejection);
        return true;
      }
    } catch (err) {
      if (!isProviderError(err)) throw err;
      log.warn({ err, ownerId, customer: id }, 'a customer could not be updated at the payment provider');
      await postpone(customer);
      return false;
    }
    // A run of another process whose lease has expired may have sent older values at the same time.
    const now = await owners.find(ownerId);
    if (now?.email === sent?.email && now?.name === sent?.name) {
      await customers.updateOne({ id, profileDueAt }, { unset: ['profileDueAt', 'profileAttempts'] });
    }
    return true;
  };

  return {
    everySeconds: INTERVAL_SECONDS,
    async run({ signal }) {
      await collectChanges(signal);
      const query = { where: { profileDueAt: { lte: clock.now() } }, sort: 'profileDueAt' } as const;
      let failures = 0;
      for (let isMore = true; isMore; ) {
        const { items } = await customers.page({ ...query, limit: PAGE_SIZE });
        for (const customer of items) {
          if (signal.aborted || failures === MAX_FAILURES_PER_RUN) return;
          if (!(await push(customer))) failures++;
        }
        isMore = items.length === PAGE_SIZE;
      }
    },
  };
}

/** Marks a customer whose values at the provider are older than the user's. */
export const profileChange = (profileDueAt: number): Change<CustomerDocument> => ({
  set: { profileDueAt, profileAttempts: 0 },
  unset: ['profileRejectedAt', 'profileRejection'],
});
