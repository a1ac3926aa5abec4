import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { BrowserContext, Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { PASSWORD } from '../kit/app.js';
import { authorizePath, type IdpApp, type IdpAppOptions, idpApp, type RegisteredClient } from '../kit/idp.js';
import { temporaryFolder } from '../kit/tmp.js';

/** An identity provider at the address it listens at, whose cookies a browser stores without TLS. */
export async function reachableIdp(
  t: Test,
  options: IdpAppOptions = {},
): Promise<{ idp: IdpApp; origin: string }> {
  const idp = await idpApp(t, { publicUrl: undefined, ...options });
  const { port } = new URL(await idp.listen());
  return { idp, origin: `http://localhost:${port}` };
}

/** The address to which an application redirects a browser. */
export const authorizeUrl = (
  origin: string,
  client: RegisteredClient,
  more: Record<string, string | undefined> = {},
): string => origin + authorizePath(client, { state: 'a&b c', ...more });

/** Fills in the form by its labels, as a person does. */
export async function fillSignIn(page: Page, handle: string, password = PASSWORD): Promise<void> {
  await page.getByLabel('E-mail or user name').fill(handle);
  await page.getByLabel('Password').fill(password);
}

export interface Listening {
  tls?: { key: string; cert: string } | undefined;
  host?: string;
}

/** A server on another origin, with or without TLS. */
export async function serveElsewhere(
  t: Test,
  listener: RequestListener,
  { tls, host = '127.0.0.1' }: Listening = {},
): Promise<{ url: string }> {
  const server = tls ? createHttpsServer(tls, listener) : createHttpServer(listener);
  await once(server.listen(0, host), 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const name = host.includes(':') ? `[${host}]` : host;
  return { url: `${tls ? 'https' : 'http'}://${name}:${port}` };
}

/** A self-signed certificate. */
export function selfSigned(): { key: string; cert: string } {
  const folder = temporaryFolder(t);
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  const subject = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'];
  execFileSync('openssl', ['req', '-x509', ...curve, '-keyout', key, '-out', cert, ...subject], {
    stdio: 'pipe',
  });
  return { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
}

/** Violations of a page's content security policy, as reported by the browser. */
export function refusalsOf(context: BrowserContext): string[] {
  const refusals: string[] = [];
  context.on('console', (message) => {
    if (/content security policy/i.test(message.text())) refusals.push(message.text());
  });
  return refusals;
}
