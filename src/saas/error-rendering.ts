import { isForm, type Pages, wantsPage } from '../core/http/pages.js';
import { routeRules, type ScopeRules } from '../core/http/scope.js';
import { renderEnvelope } from '../core/kernel/errors.js';

type Render = ScopeRules['renderError'];

/**
 * Creates the functions that render errors of the API and of the pages: as JSON for applications, and as pages for
 * browsers.
 */
export function createErrorRenderers(pages: Pages): { api: Render; pages: Render } {
  return {
    // Applications use the paths of pages, too, so only their GETs and forms get an error page.
    api: (error, request, requestId) =>
      routeRules(request.routeOptions).page && (request.method === 'GET' || isForm(request))
        ? pages.renderError(error, request, requestId)
        : renderEnvelope(error, requestId),

    pages: (error, request, requestId) =>
      wantsPage(request.headers.accept)
        ? pages.renderError(error, request, requestId)
        : renderEnvelope(error, requestId),
  };
}
