import { createBrand } from '../core/http/brand.js';
import { createMessages } from '../core/http/messages.js';
import { createPages, type Pages, wantsPage } from '../core/http/pages.js';
import { type PluginRules, routeRules } from '../core/http/routes.js';
import { renderOAuth } from '../core/kernel/errors.js';
import type { IdpConfiguration } from './options.js';

/** What people see. */
export type Appearance = ReturnType<typeof createAppearance>;

/** The pages for users. The default name is the host, because users know the issuer by it. */
export function createAppearance(values: IdpConfiguration, issuer: () => string) {
  const messages = createMessages(values);
  const brand = createBrand(values, () => new URL(issuer()).host);
  return { brand, pages: createPages(brand, messages), messages };
}

/** Renders errors as OAuth JSON, or as a page in a browser. */
export const createErrorRenderer =
  (pages: Pages): PluginRules['renderError'] =>
  (error, request, requestId) =>
    (request.is404 || routeRules(request.routeOptions).page) && wantsPage(request.headers.accept)
      ? pages.renderError(error, request, requestId)
      : renderOAuth(error);
