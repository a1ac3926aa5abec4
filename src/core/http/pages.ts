import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { FastifyReply, FastifyRequest } from 'fastify';
import mustache from 'mustache';
import type { AppError, Rendered } from '../kernel/errors.js';
import { packageFile } from '../kernel/package-files.js';
import type { Brand } from './brand.js';
import {
  type Catalogue,
  createMessages,
  fromNow,
  type Localized,
  localizeValues,
  message,
} from './messages.js';
import { FALLBACK_LOCALE } from './sentences.js';

/**
 * HTML pages: Mustache templates in `templates/pages`, with partials (such as `_card-head`, `_problems`, `_card-foot`) and one
 * inline style sheet, without external resources. The only script is the one of a page that submits itself.
 */

const FOLDER = packageFile('templates/pages');
const HTML = 'text/html; charset=utf-8';

/** Read with the first page. */
let sources: (readonly [name: string, text: string])[] | undefined;

const readSources = () =>
  readdirSync(FOLDER)
    .filter((file) => file.endsWith('.html'))
    .map((file) => [basename(file, '.html'), readFileSync(join(FOLDER, file), 'utf8')] as const);

const sheet = readFileSync(join(FOLDER, 'style.css'), 'utf8');

/**
 * The values of a template. All are escaped except the style sheet and the logo. A title in plain English marks a page
 * that is available in English only; the default title is the sentence `<template>.title`.
 */
export type View = { title?: string | Localized } & Record<string, unknown>;

/** A page to be rendered in the language of its reader. */
export interface Page {
  /** The name of its file, without the extension. */
  template: string;
  view?: View;
  /**
   * Whether its forms lead to another origin. It then has no `form-action`, which browsers also apply to every redirect
   * after a submission: an application may send the person on to an app scheme.
   */
  leadsElsewhere?: boolean;
  /** Origins of images. */
  imageSources?: readonly string[];
  /** Whether it shows other pages of its origin in frames. */
  hasFrames?: boolean;
  /** Whether its values are made up: its forms and scripts do nothing. */
  isExample?: boolean;
  /** Runs after the page was parsed; no other script does. */
  script?: string;
  /** The `ui_locales` of the request, if they are not in its query. */
  uiLocales?: string | undefined;
}

/** The pages of one product. */
export type Pages = ReturnType<typeof createPages>;

export function createPages(brand: Brand, messages = createMessages()) {
  const { name, logo, logoDark, style: accent = '' } = brand;
  const style = sheet + accent;
  const styleHash = hashSource(style);
  const keptForms = new WeakMap<FastifyRequest, Page>();
  const common = new WeakMap<FastifyRequest, View>();
  const localized = new Map<string, Record<string, string>>();

  /** The templates in one language. Mustache compiles each on first use. */
  const templatesIn = (catalogue: Catalogue): Record<string, string> => {
    let templates = localized.get(catalogue.locale);
    if (!templates) {
      sources ??= readSources();
      templates = Object.fromEntries(sources.map(([file, text]) => [file, catalogue.localize(text, 'html')]));
      localized.set(catalogue.locale, templates);
    }
    return templates;
  };

  const english = () => messages.catalogue(FALLBACK_LOCALE);

  const catalogueFor = (
    request: FastifyRequest,
    { view, uiLocales = uiLocalesOf(request) }: Page,
  ): Catalogue =>
    typeof view?.title === 'string' ? english() : messages.catalogue(messages.negotiate(request, uiLocales));

  const render = (
    { template, script, view: { title, ...values } = {} }: Page,
    catalogue: Catalogue,
  ): string => {
    const templates = templatesIn(catalogue);
    const text = textOf(templates, template);
    const view = localizeValues(
      { ...values, title: title ?? message(`${template}.title`, values) },
      catalogue,
    );
    const { locale, direction } = catalogue;
    return mustache.render(
      text,
      { ...view, locale, direction, brand: { name: name(), logo, logoDark }, style, script },
      templates,
    );
  };

  /** A page and its headers, with which it can submit forms to its origin only, unless it leads elsewhere. */
  const renderPage = (
    request: FastifyRequest,
    page: Page,
  ): { body: string; headers: Record<string, string> } => {
    const catalogue = catalogueFor(request, page);
    const { leadsElsewhere = false, imageSources = [], hasFrames = false, isExample = false, script } = page;
    const view = { ...common.get(request), ...page.view };
    const formAction = leadsElsewhere ? '' : "form-action 'self'; ";
    const frames = hasFrames ? "frame-src 'self'; " : '';
    const sandbox = isExample ? 'sandbox; ' : '';
    const images = ['data:', ...imageSources].join(' ');
    const headers = {
      'content-language': catalogue.locale,
      'content-security-policy': `default-src 'none'; ${scriptPolicy(script)}style-src ${styleHash}; img-src ${images}; ${frames}${sandbox}${formAction}base-uri 'none'; object-src 'none'; frame-ancestors 'none'`,
      'x-frame-options': 'DENY',
      // An application may have opened the sign-in in a pop-up window and wait for its result.
      ...(!leadsElsewhere && { 'cross-origin-opener-policy': 'same-origin' }),
    };
    return { body: render({ ...page, view }, catalogue), headers };
  };

  const errorView = (error: AppError, requestId: string): View => {
    const { page, statusCode, details } = error;
    const view = { statusCode, details, when: retryTime(error), requestId };
    if (english().has(`errors.${page}.message`)) {
      return {
        ...view,
        title: message(`errors.${page}.title`),
        message: message(`errors.${page}.message`),
        // For developers, in English.
        ...(error.isSpecific && { explanation: error.message }),
      };
    }
    const title = english().text(statusCode < 500 ? 'errors.rejected.title' : 'errors.INTERNAL.title');
    return { ...view, title, message: error.message };
  };

  return {
    send(reply: FastifyReply, page: Page): FastifyReply {
      const { body, headers } = renderPage(reply.request, page);
      return reply.headers(headers).type(HTML).send(body);
    },

    /** A sentence for operators. */
    textOf: (text: Localized): string => text(english()),

    /** Renders a partial in English for `{{{…}}}` in a page, so that several pages share the work. */
    renderPart(name: string, view: Record<string, unknown>): string {
      const templates = templatesIn(english());
      return mustache.render(textOf(templates, name), view, templates);
    },

    /**
     * If the request fails because of a rate limit or an overload, its response is this form with the reason as a problem,
     * instead of an error page.
     */
    keepForm(request: FastifyRequest, form: Page) {
      keptForms.set(request, form);
    },

    /** Adds values to every page that answers the request, also to an error page. */
    addToView(request: FastifyRequest, values: View) {
      common.set(request, { ...common.get(request), ...values });
    },

    /** Renders an error page. */
    renderError(error: AppError, request: FastifyRequest, requestId: string): Rendered {
      const form = error.statusCode === 429 || error.statusCode === 503 ? keptForms.get(request) : undefined;
      const page = form
        ? { ...form, view: { ...form.view, problems: problemsOf(error) } }
        : { template: 'error', view: errorView(error, requestId) };
      return { type: HTML, ...renderPage(request, page) };
    },
  };
}

/** A source of a content security policy that allows this inline text only. */
const hashSource = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

const scriptPolicy = (script: string | undefined): string =>
  script === undefined ? '' : `script-src ${hashSource(script)}; `;

function textOf(templates: Record<string, string>, name: string): string {
  const text = templates[name];
  if (text === undefined) throw new Error(`There is no page template '${name}'.`);
  return text;
}

/** Why a form was not processed, and when to submit it again. */
function problemsOf(error: AppError): Localized[] {
  const when = retryTime(error);
  return [message(`errors.${error.page}.message`), ...(when ? [message('errors.retry', { when })] : [])];
}

/** When to repeat a throttled request. The message of a 503 says it. */
function retryTime({ statusCode, headers }: AppError): Localized | undefined {
  const seconds = Number(headers['retry-after']);
  return statusCode === 429 && seconds > 0 ? fromNow(seconds) : undefined;
}

/** `ui_locales` in the query of any page (OIDC Core §3.1.2.1, RP-Initiated Logout §2). */
function uiLocalesOf({ query }: FastifyRequest): string | undefined {
  const { ui_locales: locales } = (query ?? {}) as Record<string, unknown>;
  return typeof locales === 'string' ? locales : undefined;
}

/** Whether a client accepts HTML. */
export function wantsPage(accept: string | undefined): boolean {
  return accept?.includes('text/html') === true;
}

/** Whether a request is a form submission. */
export function isForm({ headers }: Pick<FastifyRequest, 'headers'>): boolean {
  return headers['content-type']?.startsWith('application/x-www-form-urlencoded') === true;
}
