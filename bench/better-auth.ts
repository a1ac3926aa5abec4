/** better-auth on the same mongod, as a peer: its session from the database. It is no dependency; the help describes it. */
import { fileURLToPath } from 'node:url';
import { type Client, drive, hammer, repeating, request } from './load.js';
import type { Result } from './report.js';
import { type Bench, compareAnew, result, serve } from './rounds.js';
import { bearer, JSON_BODY, ME, PASSWORD, register } from './saas-rows.js';

const SERVER = fileURLToPath(new URL('better-auth-server.js', import.meta.url));
const CLIENTS = 32;

/** `me` compared with the session of better-auth: both read the session and its user for each request. */
export async function sessionOfPeer(bench: Bench): Promise<Result[]> {
  const what = `GET ${ME}`;
  const { lab, mongod } = bench;
  const folder = process.env['BETTER_AUTH'];
  if (!folder || !mongod) return [{ what: `${what} and better-auth`, skipped: 'BETTER_AUTH is not set' }];
  const compared = await compareAnew(bench, async () => {
    const { url } = await serve(bench, 'saas-backend');
    const headers = (await register(url, CLIENTS)).map(({ accessToken }) => bearer(accessToken));
    const uri = mongod.newDatabase();
    const peer = await lab.peer(process.execPath, (port) => [SERVER, String(port), folder, uri]);
    const peers: Client[] = [];
    for (let number = 0; number < CLIENTS; number++) peers.push(await signUp(peer.url, number));
    return {
      measure: (seconds) => hammer(url + ME, CLIENTS, seconds, headers),
      floor: (seconds) => drive(peer.url, peers, seconds),
    };
  });
  return [result(what, 'better-auth', compared, 1)];
}

async function signUp(url: string, number: number): Promise<Client> {
  const answer = await fetch(`${url}/api/auth/sign-up/email`, {
    method: 'POST',
    headers: { ...JSON_BODY, origin: url },
    body: JSON.stringify({ email: `person-${number}@example.com`, password: PASSWORD, name: 'Person' }),
  });
  if (!answer.ok) throw new Error(`better-auth answered ${answer.status}: ${await answer.text()}`);
  const [cookie = ''] = answer.headers.getSetCookie().map((each) => each.split(';')[0]);
  return repeating(request('GET', '/api/auth/get-session', { cookie: cookie as string }), 200);
}
