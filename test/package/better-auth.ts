import { randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Party } from '../campaign/relying-parties/kit.js';

/** better-auth in an application, with its strictest checks. */

export interface Registration {
  issuer: string;
  clientId: string;
  clientSecret: string;
}

const APP = 'http://localhost:3000';

export const REDIRECT_URI = `${APP}/api/auth/callback/idp`;

/** Its peer dependencies conflict with ours, so it is installed in a separate folder. */
export async function loadBetterAuth(folder: string): Promise<(registration: Registration) => Party> {
  const { resolve } = createRequire(join(folder, 'package.json'));
  const load = (name: string) => import(pathToFileURL(resolve(name)).href);
  const { betterAuth } = await load('better-auth');
  const { genericOAuth } = await load('better-auth/plugins');

  return ({ issuer, clientId, clientSecret }) =>
    async (visit) => {
      const logged: string[] = [];
      const auth = betterAuth({
        baseURL: APP,
        secret: randomBytes(32).toString('hex'),
        telemetry: { enabled: false },
        logger: { log: (_level: string, message: string) => void logged.push(message) },
        plugins: [
          genericOAuth({
            config: [
              {
                providerId: 'idp',
                discoveryUrl: `${issuer}/.well-known/openid-configuration`,
                clientId,
                clientSecret,
                scopes: ['openid', 'email', 'profile'],
                pkce: true,
                requireIdTokenVerification: true,
              },
            ],
          }),
        ],
      });
      const jar = new Map<string, string>();
      const call = async (path: string, init: { method?: string; body?: string } = {}) => {
        const headers = {
          'content-type': 'application/json',
          origin: APP,
          cookie: [...jar].map((pair) => pair.join('=')).join('; '),
        };
        const response: Response = await auth.handler(new Request(new URL(path, APP), { ...init, headers }));
        for (const cookie of response.headers.getSetCookie()) {
          const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
          jar.set(name, value);
        }
        return response;
      };
      const body = JSON.stringify({ provider: 'idp', callbackURL: '/welcome' });
      const begun = await call('/api/auth/sign-in/social', { method: 'POST', body });
      const { url } = (await begun.json()) as { url: string };
      const landing = await call((await visit(url)).href);
      const location = landing.headers.get('location');
      if (location !== '/welcome') throw new Error(`${location}: ${logged.join()}`);
      const session = await call('/api/auth/get-session');
      const { user } = (await session.json()) as { user: { email: string } };
      const accounts = await call('/api/auth/list-accounts');
      const [account] = (await accounts.json()) as { accountId: string }[];
      return { claims: { sub: account?.accountId, email: user.email }, userinfo: {} };
    };
}
