/** PocketBase as a peer. It is not on npm; the help of the bench describes how to build it. */
import type { Lab } from './lab.js';
import { type Client, expectStatus, request } from './load.js';

const PASSWORD = 'a sentence is fine';
const USERS = '/api/collections/users';

/** A new instance with `count` users, each of whom refreshes a token repeatedly. */
export async function pocketBase(
  lab: Lab,
  program: string,
  count: number,
): Promise<{ url: string; clients: Client[] }> {
  const { url } = await lab.peer(program, (port, folder) => {
    return ['serve', '--http', `127.0.0.1:${port}`, '--dir', `${folder}/pb_data`];
  });
  const clients: Client[] = [];
  for (let number = 0; number < count; number++) {
    const email = `person-${number}@example.com`;
    await post(`${url}${USERS}/records`, { email, password: PASSWORD, passwordConfirm: PASSWORD });
    const signedIn = await post(`${url}${USERS}/auth-with-password`, { identity: email, password: PASSWORD });
    clients.push(refreshing(signedIn.token));
  }
  return { url, clients };
}

async function post(url: string, body: object): Promise<{ token: string }> {
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}: ${await answer.text()}`);
  return (await answer.json()) as { token: string };
}

function refreshing(first: string): Client {
  let token = first;
  return {
    next: () => request('POST', `${USERS}/auth-refresh`, { authorization: token }),
    take(answer) {
      expectStatus(answer, 200);
      token = JSON.parse(answer.body).token;
    },
  };
}
