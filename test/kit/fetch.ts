import type { IdpApp } from './idp.js';

/** The `fetch` of libraries that call the provider, without a network. */
export const fetchOf =
  ({ request }: Pick<IdpApp, 'request'>) =>
  async (
    url: string | URL,
    init: { method?: string; headers?: unknown; body?: unknown } = {},
  ): Promise<Response> => {
    const { pathname, search } = new URL(url);
    const answer = await request(init.method ?? 'GET', pathname + search, {
      headers: Object.fromEntries(new Headers(init.headers as Record<string, string>)),
      ...(init.body != null && { form: String(init.body) }),
    });
    const { 'content-length': _, ...headers } = answer.headers as Record<string, string>;
    return new Response(answer.text, { status: answer.status, headers });
  };

/** How far the clock of the provider is ahead of the real one, in seconds. */
export const skewOf = ({ clock }: Pick<IdpApp, 'clock'>): number =>
  Math.floor((clock.now() - Date.now()) / 1000);
