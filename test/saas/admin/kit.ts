import { decodeEntities, readForm } from '../../kit/agent.js';
import { ADMIN, type Answer, type SaasApp } from '../../kit/app.js';

/** Pages and forms of the admin area, without JavaScript. */

export const FORM = { ...ADMIN, 'content-type': 'application/x-www-form-urlencoded' };

const absolute = (path: string) => `http://x${path}`;

/** A page with its texts and links as a person sees them. */
export const textOf = async (app: SaasApp, path: string): Promise<string> =>
  decodeEntities((await app.admin('GET', path)).text);

/** Sends what a form sends, by default from a page of the same site. Several values of a field are those of check boxes. */
export const sendForm = (
  app: SaasApp,
  path: string,
  fields: Record<string, string | string[]>,
  headers = {},
) =>
  app.request('POST', path, {
    headers: { ...FORM, ...headers },
    body: new URLSearchParams(
      Object.entries(fields).flatMap(([name, value]) =>
        [value].flat().map((one): [string, string] => [name, one]),
      ),
    ).toString(),
  });

/** Submits these fields with the first form of a page, or the first one with this action. */
export async function submit(
  app: SaasApp,
  path: string,
  fields: Record<string, string | string[]> = {},
  action?: string,
): Promise<Answer> {
  const { text } = await app.admin('GET', path);
  const form = readForm(absolute(path), text, action);
  const { token = '', version } = form.fields;
  const sent = { token, ...(version !== undefined && { version }), ...fields };
  const { pathname, search } = new URL(form.action);
  return sendForm(app, pathname + search, sent);
}

/** The page to which the answer to a form leads. */
export function follow(app: SaasApp, path: string, { headers }: Answer): Promise<Answer> {
  const { pathname, search } = new URL(headers['location'] ?? '', absolute(path));
  return app.admin('GET', pathname + search);
}
