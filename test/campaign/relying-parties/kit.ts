import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { pathToFileURL } from 'node:url';
import type { Test } from 'tap';
import { Agent } from '../../kit/agent.js';
import { basic, parseJson } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { type Credentials, type IdpApp, type IdpAppOptions, idpApp } from '../../kit/idp.js';
import { compiled } from '../../kit/process.js';
import { type Middle, standInTheMiddle } from '../../package/man-in-the-middle.js';

/** Third-party applications, set up by the recipes of docs/idp/relying-parties.md and docs/idp/oidc-libraries.md. */

const TEXT = ['relying-parties.md', 'oidc-libraries.md']
  .map((page) => readFileSync(join(compiled('.'), '../docs/idp', page), 'utf8'))
  .join('\n');

/** A provider reached through a proxy that can change its answers. */
export interface Provider {
  issuer: string;
  middle: Middle;
  idp: IdpApp;
  human: Credentials;
  agent: Credentials;
}

/** The credentials of a sign-in. */
type Login = Pick<Credentials, 'handle' | 'password'>;

/** Completes an authorization request and returns the redirect to the application. */
export type Visitor = (url: URL | string) => Promise<URL>;

/** The identity that an application received. */
export interface Known {
  claims: Record<string, unknown>;
  userinfo: Record<string, unknown>;
}

/** Signs in. Rejects when the application refuses. */
export type Party = (visit: Visitor) => Promise<Known>;

export async function startProvider(t: Test, options: IdpAppOptions = {}): Promise<Provider> {
  const middle = await standInTheMiddle(t);
  // Libraries compare times with the real clock.
  const idp = await idpApp(t, { publicUrl: middle.url, clock: fakeClock(Date.now()), ...options });
  middle.target = await idp.listen();
  const human = await idp.makeHuman({ name: 'Ada' });
  const agent = await idp.mintAgent({ name: 'Scout' });
  return { issuer: middle.url, middle, idp, human, agent };
}

/** A person with a browser and the form. */
export function withForm(issuer: string, { handle, password }: Login): Visitor {
  return async (url) => {
    const browser = new Agent({ origin: issuer });
    const { location } = await browser.submit(await browser.open(String(url)), { handle, password });
    if (location === undefined) throw new Error('the form did not lead back');
    return new URL(location);
  };
}

/** HTTP Basic, without following the redirect. */
export function withBasic({ handle, password }: Login): Visitor {
  return async (url) => {
    const headers = { authorization: basic(handle, password) };
    const answer = await fetch(url, { headers, redirect: 'manual' });
    if (answer.status !== 302) throw new Error(`${answer.status}: ${await answer.text()}`);
    return new URL(answer.headers.get('location') ?? '');
  };
}

/** A server of the application, with any handler. */
export interface Site {
  url: string;
  answer: RequestListener;
}

export async function startSite(t: Test): Promise<Site> {
  const server = createServer((request, response) => site.answer(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const site: Site = { url, answer: (_, response) => response.writeHead(404).end() };
  return site;
}

/** Adapts Node's requests to handlers of the fetch standard. */
export function listenerOf(handle: (request: Request) => Promise<Response>, origin: string): RequestListener {
  return async (request, response) => {
    const answer = await handle(await requestOf(request, origin));
    response.statusCode = answer.status;
    response.setHeaders(answer.headers).end(await answer.text());
  };
}

async function requestOf(request: IncomingMessage, origin: string): Promise<Request> {
  const { method = 'GET', headers, url = '/' } = request;
  const pairs = Object.entries(headers).map(([name, value]) => [name, String(value)] as [string, string]);
  const body = method === 'POST' ? { body: new Uint8Array(await buffer(request)) } : {};
  return new Request(new URL(url, origin), { method, headers: pairs, ...body });
}

/** The code of a recipe from the documentation, with some words replaced. */
export function recipe(heading: string, words: Record<string, string> = {}): string {
  const [, section = ''] = TEXT.split(`\n## ${heading}\n`);
  const [, code] = /```js\n([\s\S]*?)```/.exec(section.split('\n## ')[0] as string) ?? [];
  if (code === undefined) throw new Error(`there is no recipe for ${heading}`);
  return Object.entries(words).reduce((text, [word, other]) => text.replaceAll(word, other), code);
}

/** How each library treats a foreign key, according to the documentation: `refuses` or another word. */
export function verdicts(): Map<string, string> {
  const rows = TEXT.matchAll(/^\| \[([^\]]+)\]\([^)]+\) \| ([^|]+?) \|/gm);
  return new Map([...rows].map(([, name = '', verdict = '']) => [name, verdict]));
}

/** Loads code as a new module that resolves libraries from our node_modules. */
// biome-ignore lint/suspicious/noExplicitAny: each recipe has its own exports
export async function load(t: Test, code: string, env: Record<string, string>): Promise<any> {
  const folder = mkdtempSync(compiled('test/campaign/relying-parties/recipe-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'recipe.mjs');
  writeFileSync(file, code.replaceAll('process.env', JSON.stringify(env)));
  return import(pathToFileURL(file).href);
}

/** Recipes with the two functions. */
// biome-ignore lint/suspicious/noExplicitAny: each recipe has its own state
export const asLibrary = ({ begin, finish }: any) => {
  // biome-ignore lint/suspicious/noExplicitAny: as above
  return async (visit: Visitor): Promise<any> => {
    const { url, kept } = await begin();
    return finish(await visit(url), kept);
  };
};

/** The error message, with its causes. */
export async function refusalOf(signIn: Promise<unknown>): Promise<string> {
  const reasons: string[] = [];
  let error: unknown = await signIn.then(
    () => new Error('not at all'),
    (reason) => reason,
  );
  while (error instanceof Error) {
    reasons.push(error.message);
    error = error.cause;
  }
  return reasons.join(': ');
}

/** An application that shows the signed-in user at `/` and redirects others to the provider. */
export function visitSite(site: Site): Party {
  return async (visit) => {
    const browser = new Agent({ origin: site.url });
    const { location = '' } = await browser.open(site.url);
    const { status, body } = await browser.open((await visit(location)).href);
    if (status !== 200) throw new Error(`${status}: ${body}`);
    return parseJson(body) as Known;
  };
}
