import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FastifyReply, FastifyRequest } from 'fastify';
import mustache from 'mustache';
import type { AppError, Rendered } from './errors.js';

/**
 * Pages: logic-less templates of `templates/pages`, each a whole document that includes the partials beside
 * it (`_head`, `_foot`) and one inlined style sheet. No script, nothing from elsewhere.
 */

const FOLDER = fileURLToPath(new URL('../../../templates/pages/', import.meta.url));
const HTML = 'text/html; charset=utf-8';

const files = readdirSync(FOLDER).filter((file) => file.endsWith('.html'));
const templates = Object.fromEntries(
  files.map((file) => [basename(file, '.html'), readFileSync(join(FOLDER, file), 'utf8')]),
);
const style = readFileSync(join(FOLDER, 'style.css'), 'utf8');
const styleHash = `'sha256-${createHash('sha256').update(style).digest('base64')}'`;

/** The document `<name>.html` with `view` filled in; every value is escaped. */
export function renderPage(name: string, view: { title: string } & Record<string, unknown>): string {
  const template = templates[name];
  if (template === undefined) throw new Error(`There is no page template '${name}'.`);
  return mustache.render(template, { ...view, style }, templates);
}

/** What a browser may do with a page of ours: show it and send its forms, to us and to `formTargets`. */
function policy(formTargets: readonly string[]): string {
  const targets = ["'self'", ...formTargets].join(' ');
  return `default-src 'none'; style-src ${styleHash}; img-src 'self' data:; form-action ${targets}; base-uri 'none'; object-src 'none'; frame-ancestors 'none'`;
}

/**
 * The headers of a page.
 * @param formTargets further sources of `form-action`: browsers check redirects after a submission, too
 */
function pageHeaders(formTargets: readonly string[] = []): Record<string, string> {
  return {
    'content-security-policy': policy(formTargets),
    'x-frame-options': 'DENY',
    'cross-origin-opener-policy': 'same-origin',
  };
}

/** Answers with a page. */
export function sendPage(reply: FastifyReply, html: string, formTargets?: readonly string[]): FastifyReply {
  return reply.headers(pageHeaders(formTargets)).type(HTML).send(html);
}

/** Whether a request comes from a browser that wants to show something. */
export function wantsPage(accept: string | undefined): boolean {
  return accept?.includes('text/html') === true;
}

/** Whether a request is a form that a page has sent. */
export function isForm({ headers }: Pick<FastifyRequest, 'headers'>): boolean {
  return headers['content-type']?.startsWith('application/x-www-form-urlencoded') === true;
}

/** An error as a page. */
export function renderErrorPage(error: AppError, requestId: string): Rendered {
  const { message, statusCode, details } = error;
  const body = renderPage('error', { title: message, statusCode, details, requestId });
  return { type: HTML, body, headers: pageHeaders() };
}
