import type { User } from 'saas-backend';
import { backend } from '../../src/session';

/** For programs: API keys and agents with the scope `profile:read`, as the API knows them. */
export async function GET({ url, headers }: Request): Promise<Response> {
  const answer = await backend(new Request(new URL('/api/auth/me', url), { headers }));
  if (!answer.ok) return answer;
  const { user } = ((await answer.json()) as { data: { user: User } }).data;
  return Response.json({ email: user.email, plan: user.subscription.plan });
}
