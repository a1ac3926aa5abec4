import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { Page, Pages, View } from '../../core/http/pages.js';
import { access } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import type { Operator } from '../../core/ops/audit.js';
import type { FormTokens } from './forms.js';
import { ICONS, type Icon } from './icons.js';
import { marksAt } from './marks.js';
import { namedOperatorOf, type OperatorRole, operatorIn } from './roles.js';
import { createTimeZone } from './time-zone.js';

/**
 * Pages for operators: a frame with navigation, lists, and actions with confirmation. Each product has one console. All
 * links are relative, because a host may mount the console at any path.
 */

/** In the query of a page: the notice that confirms what the previous page did. */
export const Done = Type.Optional(
  Type.String({ accepts: 'the name of a notice', maxLength: 64, pattern: '^[a-z-]*$' }),
);

/** In the query of a page that shows something in a language. */
export const Locale = Type.Optional(
  Type.String({ accepts: 'a language tag like de', maxLength: 35, pattern: '^[A-Za-z0-9-]*$' }),
);

/** Fastify's `maxParamLength`: a longer parameter never matches. */
const MAX_PARAM_LENGTH = 100;

/** The parameters of a path: IDs. */
export const Parameters = Type.Record(
  Type.String(),
  Type.String({ accepts: 'an ID', maxLength: MAX_PARAM_LENGTH, pattern: '^[^\\p{C}]+$' }),
);

/** An entry of the navigation. */
export interface Section {
  /** Relative to the root of the console: `users`; `''` is the start page. */
  path: string;
  label: string;
  icon: Icon;
  /** The heading above it and those that follow. */
  group?: string;
}

export interface ConsoleOptions {
  /** The name of the whole, for the heading of the navigation. */
  title: string;
  sections: readonly Section[];
  /** The access level of every route. */
  access: string;
  /** Path prefix of the JSON routes, relative to the root; absent: there are none. */
  api?: string;
  pages: Pages;
  clock: Clock;
  publicUrl: () => string;
  /** The CSRF tokens of the forms that the operator of a request submits. */
  tokensOf(request: FastifyRequest): FormTokens;
  /** The name of the operator of a request, for the audit, unless it is a user with a role. */
  nameOf(request: FastifyRequest): string;
  /** Where the operator of a request signs out, relative to the page; undefined if they cannot. */
  signOutHrefOf?(request: FastifyRequest, root: string): string | undefined;
}

export type Console = ReturnType<typeof createConsole>;

/** What the search of the whole console finds in one list: see `registerSearch`. */
export interface Found {
  heading: string;
  /** The list with this search, if there is more. */
  moreHref: string | undefined;
  /** See `tableOf`. */
  table: View;
  /** The pages of what the text identifies. */
  identified: readonly string[];
}

/** Searches a list; null if it finds nothing. Paths are those of pages, and `root` leads to the root of the console. */
export type SearchList = (text: string, root: string) => Promise<Found | null>;

export function createConsole(options: ConsoleOptions) {
  const { title, sections, pages, clock, tokensOf, nameOf, signOutHrefOf, access: level, api } = options;
  const timeZone = createTimeZone(options.publicUrl);
  const notices = new Map<string, string>();
  const searches: SearchList[] = [];
  return {
    /** The lists that the search of the whole console asks, in this order. */
    searches,
    access: level,
    ...(api !== undefined && { api }),
    tokensOf,
    timeZone,
    /** The `config` of a route that renders a page. */
    config: access(level, { page: true }),
    /** The same for a role, where operators have roles. */
    configFor: (operatorRole: OperatorRole) => access(level, { page: true, operatorRole }),

    /** Sends the page `<template>.html` in the frame. `notice` confirms what the previous page did. */
    send(
      request: FastifyRequest,
      reply: FastifyReply,
      { section, view, ...page }: { template: string; section: string; view: View; hasFrames?: boolean },
    ): FastifyReply {
      const root = rootOf(request);
      const zone = timeZone.of(request);
      const { done } = request.query as { done?: unknown };
      const notice = notices.get(String(done));
      const named = namedOperatorOf(request);
      const signOutHref = signOutHrefOf?.(request, root);
      const account = signOutHref !== undefined && { name: named?.name ?? nameOf(request), signOutHref };
      const current = sections.find(({ path }) => path === section);
      const shown = {
        // Above a page that belongs to an entry of the navigation without being it.
        parent: current &&
          section !== '' &&
          current.label !== view.title && { label: current.label, href: root + current.path },
        ...view,
        ...(named?.role === 'read-only' && { tools: [], download: false }),
        ...marksAt(clock.now(), zone),
        timeZone: zone,
        consoleTitle: title,
        groups: navigationOf(sections, section, root),
        moreIcon: ICONS.more,
        root,
        notice,
        account,
        everything: { action: `${root}search`, value: view['searched'] },
      };
      return pages.send(reply, { ...page, view: shown });
    },

    /** The schema of a page in a language, with IDs in its path. */
    localized: { params: Parameters, querystring: Type.Object({ locale: Locale }) },

    /** Sends a page of people, to show it with example values. */
    sendExample: (reply: FastifyReply, page: Page): FastifyReply =>
      pages.send(reply, { ...page, isExample: true }),

    /** Renders a partial; see `Pages`. */
    renderPart: pages.renderPart,
    textOf: pages.textOf,

    /** Makes a confirmation available to `redirect`. */
    addNotice(key: string, sentence: string) {
      notices.set(key, sentence);
    },

    /** Ends a form submission: shows `path` with the notice. */
    redirect: (request: FastifyRequest, reply: FastifyReply, path: string, notice?: string): FastifyReply =>
      reply.redirect(
        rootOf(request) +
          path +
          (notice === undefined ? '' : `${path.includes('?') ? '&' : '?'}done=${notice}`),
        303,
      ),

    /** Who makes a change, and from where. */
    operatorOf: (request: FastifyRequest): Operator => operatorIn(request, nameOf(request)),
  };
}

/** The first entries of the navigation have a place in the bar of a telephone. */
const MAX_IN_BAR = 4;

function navigationOf(sections: readonly Section[], current: string, root: string) {
  const groups: { heading: string | false; entries: object[] }[] = [];
  for (const [index, { path, label, icon, group }] of sections.entries()) {
    if (index === 0 || group !== undefined) groups.push({ heading: group ?? false, entries: [] });
    groups.at(-1)?.entries.push({
      href: root + path,
      label,
      icon: ICONS[icon],
      isCurrent: path === current,
      isRest: index >= MAX_IN_BAR,
    });
  }
  return groups;
}

/** The last segment of the path of a request: a link from the page to itself. */
export function ownPath(request: FastifyRequest): string {
  const [path = ''] = request.url.split('?');
  return path.slice(path.lastIndexOf('/') + 1);
}

/** The root of the console as seen from the page of a request: `../`, `./`, or `admin/` without a trailing slash. */
export function rootOf(request: FastifyRequest): string {
  const own = ownPath(request);
  const { url: route = '' } = request.routeOptions;
  const { prefix } = request.server;
  const depth = route.slice(prefix.length).split('/').length - 2;
  if (depth > 0) return '../'.repeat(depth);
  const isRoot = depth < 0 || route.slice(prefix.length) === '/';
  return isRoot && own !== '' ? `${own}/` : './';
}
