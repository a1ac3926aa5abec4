/** Rejections of the identity provider for different reasons: on each row, requests that an attacker must not distinguish by time. */

import { openStore } from '../../src/core/storage/open.js';
import { principalCollection } from '../../src/idp/provisioning/store.js';
import { basic, CALLBACK, create } from './idp-rows.js';
import type { Lab } from './lab.js';
import { request } from './load.js';
import {
  ACCOUNTS,
  addressesOf,
  inTurn,
  JSON_BODY,
  PASSWORD,
  post,
  type TimingRow,
  type TimingRows,
  times,
  WRONG,
} from './timing-classes.js';

/** A password in the format of generated ones. */
const FORGED = `agp_${'x'.repeat(43)}`;

export const IDP_TIMING_ROWS: TimingRows = { basic: basicLogin, links };

async function basicLogin(lab: Lab): Promise<TimingRow[]> {
  const { url } = await lab.unbound('idp', 'basic');
  const { client_id: clientId = '' } = await create(url, 'clients', {
    name: 'Bench',
    redirect_uris: [CALLBACK],
  });
  const query = new URLSearchParams({ response_type: 'code', client_id: clientId, redirect_uri: CALLBACK });
  for (const handle of addressesOf('minted')) await create(url, 'agents', { handle });
  for (const handle of addressesOf('chosen'))
    await post(`${url}/v1/accounts`, { handle, password: PASSWORD });
  for (const handle of addressesOf('person'))
    await post(`${url}/v1/accounts`, { handle, password: PASSWORD, kind: 'human' });
  const wrong = (name: string, password: string) =>
    inTurn(
      addressesOf(name).map((handle) =>
        request('GET', `/authorize?${query}`, { authorization: basic(handle, password) }),
      ),
    );
  const row = (name: string, password: string): TimingRow => ({
    name,
    url,
    expected: 401,
    classes: {
      unknown: wrong('nobody', password),
      minted: wrong('minted', password),
      'self-chosen': wrong('chosen', password),
      human: wrong('person', password),
    },
  });
  return [row('Basic at /authorize, chosen shape', WRONG), row('Basic at /authorize, agp_ shape', FORGED)];
}

/**
 * The status already distinguishes used and expired links from unknown ones. Time could additionally reveal whether
 * there is a principal whose identifier, of 80 random bits, the link begins with.
 */
async function links(lab: Lab): Promise<TimingRow[]> {
  const uri = lab.database('idp');
  const { url } = await lab.unbound('idp', 'links', { uri });
  const invite = async (number: number): Promise<string> => {
    const { invite_url: link = '' } = await create(url, 'invites', {
      handle: `invited-${number}@example.com`,
    });
    return new URL(link).pathname;
  };
  const paths = await times(2 * ACCOUNTS, invite);
  const [used, expired] = [paths.slice(0, ACCOUNTS), paths.slice(ACCOUNTS)];
  for (const path of used) await post(url + path, { password: PASSWORD });
  const store = await openStore(uri);
  for (const path of expired) {
    const id = `u_${path.slice('/invite/'.length, -43)}`;
    await principalCollection(store).updateOne({ id }, { set: { linkExpiresAt: 1 } });
  }
  await store.close();
  const forged = expired.map((path) => `${path.slice(0, -43)}${'x'.repeat(43)}`);
  const unknown = forged.map((path) => path.replace(/.{8}x{43}$/, `00000000${'x'.repeat(43)}`));
  const body = JSON.stringify({ password: PASSWORD });
  const row = (method: 'GET' | 'POST', classes: Record<string, string[]>): TimingRow => ({
    name: `${method} /invite/:token`,
    url,
    expected: [404, 410],
    classes: Object.fromEntries(
      Object.entries(classes).map(([name, ofClass]) => [
        name,
        inTurn(
          ofClass.map((path) =>
            method === 'GET' ? request('GET', path) : request('POST', path, JSON_BODY, body),
          ),
        ),
      ]),
    ),
  });
  const refused = { unknown, 'of another secret': forged, expired };
  // The same request with a used link succeeds, after a look at its password.
  return [row('GET', { ...refused, used }), row('POST', refused)];
}
