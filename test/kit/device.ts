import type { Test } from 'tap';
import { clientCollection } from '../../src/idp/provisioning/store.js';
import { Agent, type Page } from './agent.js';
import type { Answer } from './app.js';
import {
  type Credentials,
  type IdpApp,
  type IdpAppOptions,
  idpApp,
  idpStore,
  type Parameters,
  type RegisteredClient,
  search,
} from './idp.js';

/** The device flow: a device that asks for a code, and a person who enters it in a browser. */

export const DEVICE_GRANT = 'urn:ietf:params:oauth:grant-type:device_code';

export interface DeviceApp {
  idp: IdpApp;
  client: RegisteredClient;
  human: Credentials;
}

/** A provider with the device flow, a client that may use it, and a person. */
export async function deviceApp(
  t: Test,
  { client: metadata = { public: true }, ...options }: IdpAppOptions & { client?: object } = {},
): Promise<DeviceApp> {
  const idp = await idpApp(t, { deviceFlow: true, ...options });
  const client = await deviceClient(t, idp, { name: 'TV', ...metadata });
  return { idp, client, human: await idp.makeHuman() };
}

/** A client as `idp client create --device` registers it. */
export async function deviceClient(t: Test, idp: IdpApp, metadata: object = {}): Promise<RegisteredClient> {
  const client = await idp.createClient({ ...metadata });
  await clientCollection(await idpStore(t, idp)).updateOne({ id: client.id }, { set: { device: true } });
  return client;
}

const clientFields = ({ id, secret }: RegisteredClient): Parameters => ({
  client_id: id,
  client_secret: secret,
});

/** The request of a device. */
export const begin = (idp: IdpApp, client: RegisteredClient, more: Parameters = {}, from?: string) =>
  idp.request('POST', '/device_authorization', {
    form: search({ ...clientFields(client), ...more }),
    ...(from !== undefined && { from }),
  });

export const poll = (
  idp: IdpApp,
  client: RegisteredClient,
  deviceCode: string,
  more: Parameters = {},
): Promise<Answer> => idp.request('POST', '/token', { form: polling(client, deviceCode, more) });

export const polling = (client: RegisteredClient, deviceCode: string, more: Parameters = {}): string =>
  search({ grant_type: DEVICE_GRANT, device_code: deviceCode, ...clientFields(client), ...more });

/** Signs a person in to the page for codes. */
export async function openDevicePage(
  origin: string,
  { handle, password }: Pick<Credentials, 'handle' | 'password'>,
  path = '/device',
): Promise<{ browser: Agent; page: Page }> {
  const browser = new Agent({ origin });
  const form = await browser.open(origin + path);
  return { browser, page: await browser.submit(form, { handle, password }) };
}

/** Signs a person in and enters the code. Returns the page that asks for the decision. */
export async function enterCode(idp: IdpApp, who: Credentials, userCode: string) {
  const { browser, page } = await openDevicePage(await idp.listen(), who);
  return { browser, page: await browser.submit(page, { user_code: userCode }) };
}

/** The whole decision of a person. */
export async function decide(
  idp: IdpApp,
  who: Credentials,
  userCode: string,
  decision: 'allow' | 'deny' = 'allow',
): Promise<{ browser: Agent; page: Page }> {
  const { browser, page } = await enterCode(idp, who, userCode);
  return { browser, page: await browser.submit(page, { decision }) };
}
