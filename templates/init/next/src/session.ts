import { headers } from 'next/headers';
import { redirect } from 'next/navigation';
import type { User } from 'saas-backend/client';
import { createFetchHandler } from 'saas-backend/next';
import { backendOptions } from './backend';

/** Serves the API, the pages of accounts and the admin area. It starts with the first request: a build needs no secrets. */
export const backend = createFetchHandler(backendOptions);

/** The signed-in user of a page; a visitor is sent to the sign-in, and returns. */
export async function requireVisitor(path: string): Promise<User> {
  const session = await backend.getSession(await headers());
  if (!session) redirect(`/account/sign-in?return_to=${encodeURIComponent(path)}`);
  return session.user;
}
