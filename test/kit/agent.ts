import { parseSetCookie, stringifyCookie } from 'cookie';

/** A browser without a screen: cookies, redirects and forms, no scripts. */

export interface Form {
  method: 'get' | 'post';
  /** Absolute. */
  action: string;
  /** The values in the page: hidden fields, inputs, the first submit button with a name. */
  fields: Record<string, string>;
}

export interface Page {
  url: string;
  status: number;
  headers: Headers;
  body: string;
  /** The address a redirect points to. */
  location: string | undefined;
  /** The first form of the page, or the first whose action ends in `action`. @throws when there is none */
  form(action?: string): Form;
}

export interface AgentOptions {
  /** Redirects to other origins are returned, not followed: they lead to the client. */
  origin: string;
  /** Sent with every request. */
  headers?: Record<string, string>;
}

interface StoredCookie {
  name: string;
  value: string;
  path: string;
}

const MOST_REDIRECTS = 20;

export class Agent {
  readonly #origin: string;
  readonly #headers: Record<string, string>;
  #cookies: StoredCookie[] = [];

  constructor({ origin, headers = {} }: AgentOptions) {
    this.#origin = new URL(origin).origin;
    this.#headers = headers;
  }

  /** Name → value of the cookies that it would send to `path`. */
  cookies(path = '/'): Record<string, string> {
    const sent = this.#cookies.filter((cookie) => isBelow(path, cookie.path));
    return Object.fromEntries(sent.map(({ name, value }) => [name, value]));
  }

  /** The header with the cookies that it would send to `path`. */
  cookieHeader(path?: string): string {
    return stringifyCookie(this.cookies(path));
  }

  /** Opens an address and follows its redirects within the origin. */
  async open(url: string): Promise<Page> {
    return this.follow(await this.get(url));
  }

  /** Fills in a page's first form, or the first with this action, submits it and follows redirects. */
  async submit(page: Page, fields: Record<string, string> = {}, action?: string): Promise<Page> {
    return this.follow(await this.send(page, fields, action));
  }

  /** One GET, without following redirects. */
  get(url: string): Promise<Page> {
    return this.#exchange(url, { method: 'GET' });
  }

  /** One submission of a form, without following redirects. */
  send(page: Page, fields: Record<string, string> = {}, action?: string): Promise<Page> {
    const form = page.form(action);
    const values = new URLSearchParams({ ...form.fields, ...fields });
    if (form.method === 'get') return this.get(`${form.action.replace(/\?.*$/, '')}?${values}`);
    // Browsers send these headers with a form of the same origin.
    const headers = { origin: new URL(page.url).origin, referer: page.url, 'sec-fetch-site': 'same-origin' };
    return this.#exchange(form.action, { method: 'POST', headers, body: values });
  }

  async follow(page: Page): Promise<Page> {
    let current = page;
    for (let count = 0; count < MOST_REDIRECTS; count++) {
      const { location } = current;
      if (location === undefined || new URL(location).origin !== this.#origin) return current;
      current = await this.get(location);
    }
    throw new Error(`more than ${MOST_REDIRECTS} redirects from ${page.url}`);
  }

  async #exchange(url: string, init: RequestInit & { headers?: Record<string, string> }): Promise<Page> {
    const absolute = new URL(url, this.#origin);
    const cookie = this.cookieHeader(absolute.pathname);
    const headers = { accept: 'text/html', ...this.#headers, ...init.headers, ...(cookie && { cookie }) };
    const response = await fetch(absolute, { ...init, headers, redirect: 'manual' });
    for (const text of response.headers.getSetCookie()) this.#keep(text, absolute.pathname);
    return pageOf(absolute.href, response, await response.text());
  }

  #keep(text: string, requestPath: string): void {
    const { name, value = '', path, maxAge, expires } = parseSetCookie(text);
    const where = path ?? (requestPath.replace(/\/[^/]*$/, '') || '/');
    this.#cookies = this.#cookies.filter((cookie) => cookie.name !== name || cookie.path !== where);
    const isGone = maxAge === undefined ? expires !== undefined && expires.getTime() <= 0 : maxAge <= 0;
    if (!isGone) this.#cookies.push({ name, value, path: where });
  }
}

function isBelow(path: string, parent: string): boolean {
  return path === parent || path.startsWith(parent.endsWith('/') ? parent : `${parent}/`);
}

function pageOf(url: string, response: Response, body: string): Page {
  const location = response.status >= 300 && response.status < 400 ? response.headers.get('location') : null;
  return {
    url,
    status: response.status,
    headers: response.headers,
    body,
    location: location === null ? undefined : new URL(location, url).href,
    form: (action) => readForm(url, body, action),
  };
}

/** Our own pages are regular enough for this; others may not be. */
export function readForm(url: string, html: string, wanted = ''): Form {
  // Without the search field of the frame, which every page of a console has.
  const forms = html
    .replace(/<form class="everything"[\s\S]*?<\/form>/, '')
    .matchAll(/<form\b([^>]*)>([\s\S]*?)<\/form>/gi);
  const [, attributes = '', inside = ''] =
    [...forms].find(([, text = '']) => (readAttributes(text)['action'] ?? '').endsWith(wanted)) ?? [];
  if (inside === '') throw new Error(`there is no form at ${url}:\n${html}`);
  const { action = url, method = 'get' } = readAttributes(attributes);
  const fields: Record<string, string> = {};
  let hasButton = false;
  for (const [, tag = '', text = ''] of inside.matchAll(/<(input|button|textarea)\b([^>]*)>/gi)) {
    const { name, type = tag.toLowerCase() === 'button' ? 'submit' : 'text', ...rest } = readAttributes(text);
    const { value = type === 'checkbox' ? 'on' : '' } = rest;
    if (name === undefined || 'disabled' in rest) continue;
    if ((type === 'checkbox' || type === 'radio') && !('checked' in rest)) continue;
    if (type === 'submit') {
      if (hasButton) continue;
      hasButton = true;
    }
    fields[name] = value;
  }
  return {
    action: new URL(action, url).href,
    method: method.toLowerCase() === 'post' ? 'post' : 'get',
    fields,
  };
}

function readAttributes(text: string): Record<string, string> {
  const pairs = [...text.matchAll(/([\w-]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)))?/g)];
  return Object.fromEntries(
    pairs.map(([, name = '', double, single, bare]) => [
      name.toLowerCase(),
      decodeEntities(double ?? single ?? bare ?? ''),
    ]),
  );
}

const ENTITIES: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

/** The text of HTML as a person sees it. */
export function decodeEntities(text: string): string {
  return text.replace(/&(?:#x([0-9a-f]+)|#(\d+)|(\w+));/gi, (whole, hex, decimal, name) => {
    if (hex) return String.fromCodePoint(Number.parseInt(hex, 16));
    if (decimal) return String.fromCodePoint(Number(decimal));
    return ENTITIES[name] ?? whole;
  });
}
