import { type PresentUser, toUserView } from '../../src/saas/auth/store.js';

/** Views of users without a purchase. */
export const viewUnsubscribed: PresentUser = (user) =>
  toUserView(user, { status: 'none', plan: 'free', entitled: false });

/** For users without customers at a payment provider. */
export const NO_CUSTOMERS = { collection: 'customers', linking: async () => undefined };
