import { type PresentUser, toUserView } from '../../src/auth/store.js';

/** Views of users who have never bought anything. */
export const viewUnsubscribed: PresentUser = async (user) =>
  toUserView(user, { status: 'none', plan: 'free', entitled: false });
