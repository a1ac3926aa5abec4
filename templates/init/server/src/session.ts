import type { FastifyInstance } from 'fastify';
import type { User } from 'saas-backend';

/** The user who is signed in with the cookie of the account pages; null for a visitor. The session stays as it is. */
export async function userOf(backend: FastifyInstance, cookie: string | undefined): Promise<User | null> {
  if (cookie === undefined) return null;
  const headers = { cookie, 'session-mode': 'cookie' };
  const { statusCode, json } = await backend.inject({ url: '/api/auth/session', headers });
  if (statusCode !== 200) throw new Error(`the session cannot be read: ${statusCode}`);
  return json<{ data: { session: { user: User } | null } }>().data.session?.user ?? null;
}
