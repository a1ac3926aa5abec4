import { type Brand, createBrand } from '../core/http/brand.js';
import { createMessages, type Messages } from '../core/http/messages.js';
import { createPages, type Pages, wantsPage } from '../core/http/pages.js';
import { routeRules, type ScopeRules } from '../core/http/scope.js';
import { renderOAuth } from '../core/kernel/errors.js';
import type { IdpConfiguration } from './options.js';

/** What people see. */
export interface Appearance {
  brand: Brand;
  pages: Pages;
  messages: Messages;
}

/** The pages for users. The default name is the host, because users know the issuer by it. */
export function createAppearance(values: IdpConfiguration, issuer: () => string): Appearance {
  const messages = createMessages(values);
  const brand = createBrand(values, () => new URL(issuer()).host);
  return { brand, pages: createPages(brand, messages), messages };
}

/** Renders errors as OAuth JSON, or as a page in a browser. */
export const createErrorRenderer =
  (pages: Pages): ScopeRules['renderError'] =>
  (error, request, requestId) =>
    (request.is404 || routeRules(request.routeOptions).page) && wantsPage(request.headers.accept)
      ? pages.renderError(error, request, requestId)
      : renderOAuth(error);
