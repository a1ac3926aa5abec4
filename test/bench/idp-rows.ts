/** Rows of idp. */
import { fileURLToPath } from 'node:url';
import { ADMIN_TOKEN } from './lab.js';
import { type Answer, ask, type Client, drive, expectStatus, hammer, request } from './load.js';
import { PEER_STEPS, peerSignIn } from './peer-flow.js';
import type { Result } from './report.js';
import { type Bench, compareAnew, type Row, result, serve } from './rounds.js';

export const CALLBACK = 'https://app.example/callback';
const CLIENTS = 32;
const PEER_SERVER = fileURLToPath(new URL('peer-server.js', import.meta.url));

export const jwks = published('/.well-known/jwks.json');
export const discovery = published('/.well-known/openid-configuration');

function published(path: string) {
  return async (bench: Bench): Promise<Result[]> => {
    const compared = await compareAnew(bench, async () => {
      const { url } = await serve(bench, 'idp');
      const floor = await bench.lab.floor('hello', await (await ask(url + path)).text());
      return {
        measure: (seconds) => hammer(url + path, CLIENTS, seconds),
        floor: (seconds) => hammer(floor.url, CLIENTS, seconds),
      };
    });
    return [result(`GET ${path}`, 'hello', compared, 0.65)];
  };
}

/**
 * Agents that sign in with two requests: Basic at /authorize, then the code for an id_token. Compared with
 * oidc-provider, which keeps all data in memory.
 */
export function code(least?: number): Row {
  return async (bench) => {
    const compared = await compareAnew(bench, async () => {
      const { url } = await serve(bench, 'idp');
      const agents = await signIns(url);
      const peer = await bench.lab.peer(process.execPath, (port) => [PEER_SERVER, String(port)]);
      const peers = agents.map((_, number) => peerSignIn(handleOf(number)));
      return {
        measure: async (seconds) => (await drive(url, agents, seconds)) / 2,
        floor: async (seconds) => (await drive(peer.url, peers, seconds)) / PEER_STEPS,
      };
    });
    return [result('code flow of an agent', 'oidc-provider', compared, least)];
  };
}

const handleOf = (number: number) => `agent-${number}@example.com`;

async function signIns(url: string): Promise<Client[]> {
  const application = await registerApplication(url);
  const agents: Client[] = [];
  for (let number = 0; number < CLIENTS; number++) {
    const handle = handleOf(number);
    const { password = '' } = await create(url, 'agents', { handle });
    const credentials = basic(handle, password);
    agents.push(signIn(() => credentials, application));
  }
  return agents;
}

interface Application {
  clientId: string;
  credentials: string;
}

export async function registerApplication(url: string): Promise<Application> {
  const made = await create(url, 'clients', { name: 'Bench', redirect_uris: [CALLBACK] });
  const { client_id: clientId = '', client_secret: secret = '' } = made;
  return { clientId, credentials: basic(clientId, secret) };
}

/** Signs in at an application repeatedly. @param agent returns the credentials of the next agent */
export function signIn(agent: () => string, { clientId, credentials }: Application): Client {
  const query = new URLSearchParams({
    response_type: 'code',
    client_id: clientId,
    redirect_uri: CALLBACK,
    scope: 'openid email',
    state: 'of the bench',
  });
  const headers = { authorization: credentials, 'content-type': 'application/x-www-form-urlencoded' };
  let code: string | undefined;
  return {
    next: () => {
      if (code === undefined) return request('GET', `/authorize?${query}`, { authorization: agent() });
      const form = { grant_type: 'authorization_code', code, redirect_uri: CALLBACK };
      return request('POST', '/token', headers, new URLSearchParams(form).toString());
    },
    take: (answer: Answer) => {
      if (code === undefined) {
        expectStatus(answer, 302);
        code = /[?&]code=([^&\s]+)/.exec(answer.head)?.[1];
        if (code === undefined) throw new Error(`no code in ${answer.head}`);
      } else {
        expectStatus(answer, 200);
        code = undefined;
      }
    },
  };
}

export async function create(url: string, what: string, body: object): Promise<Record<string, string>> {
  const answer = await ask(`${url}/v1/${what}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (answer.status !== 201) throw new Error(`/v1/${what} answered ${answer.status}: ${await answer.text()}`);
  return (await answer.json()) as Record<string, string>;
}

export function basic(username: string, password: string): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}
