/** The sign-in of an agent at oidc-provider: four requests with cookies, through its interaction. */
import { type Client, expectStatus, request } from './load.js';

/** The header that identifies the agent, in place of a page with a form. */
export const AGENT_HEADER = 'x-agent';

export const PEER_CLIENT = {
  client_id: 'bench',
  client_secret: 'secret-of-a-local-server',
  redirect_uris: ['https://app.example/callback'],
};

/** The requests of a flow. */
export const PEER_STEPS = 4;

export function peerSignIn(agent: string): Client {
  const { client_id, client_secret, redirect_uris } = PEER_CLIENT;
  const redirect_uri = redirect_uris[0] as string;
  const authorize = `/auth?${new URLSearchParams({
    response_type: 'code',
    client_id,
    redirect_uri,
    scope: 'openid email',
    state: 'of the bench',
  })}`;
  const credentials = Buffer.from(`${client_id}:${client_secret}`).toString('base64');
  const headers = {
    authorization: `Basic ${credentials}`,
    'content-type': 'application/x-www-form-urlencoded',
  };
  let cookies = new Map<string, string>();
  let step = 0;
  let location = authorize;

  const redeem = () => {
    const code = new URL(location).searchParams.get('code') ?? '';
    const form = new URLSearchParams({ grant_type: 'authorization_code', code, redirect_uri });
    return request('POST', '/token', headers, form.toString());
  };

  return {
    next() {
      if (step === PEER_STEPS - 1) return redeem();
      const cookie = [...cookies].map((pair) => pair.join('=')).join('; ');
      return request('GET', location, { [AGENT_HEADER]: agent, ...(cookie !== '' && { cookie }) });
    },
    take(answer) {
      step++;
      if (step < PEER_STEPS) {
        expectStatus(answer, 302, 303);
        for (const [, name = '', value = ''] of answer.head.matchAll(/\r\nset-cookie: ([^=]+)=([^;\r]*)/gi)) {
          if (value === '') cookies.delete(name);
          else cookies.set(name, value);
        }
        const next = /\r\nlocation: ([^\r]+)/i.exec(answer.head)?.[1] ?? '';
        location = next.replace(/^http:\/\/127\.0\.0\.1:\d+/, '');
        return;
      }
      expectStatus(answer, 200);
      if (!answer.body.includes('"id_token"')) throw new Error(`no id_token in ${answer.body}`);
      step = 0;
      cookies = new Map();
      location = authorize;
    },
  };
}
