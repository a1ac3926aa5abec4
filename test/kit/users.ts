import { type PresentUser, toUserView } from '../../src/saas/auth/store.js';

/** Views of users without a purchase. */
export const viewUnsubscribed: PresentUser = async (user) =>
  toUserView(user, { status: 'none', plan: 'free', entitled: false });
