import { userView, type ViewOf } from '../../src/auth/store.js';

/** Views of users who have never bought anything. */
export const viewUnsubscribed: ViewOf = async (user) =>
  userView(user, { status: 'none', plan: 'free', entitled: false });
