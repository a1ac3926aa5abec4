import { isForm, type Pages, wantsPage } from '../http/pages.js';
import { routeRules, type ScopeRules } from '../http/scope.js';
import { renderEnvelope } from '../kernel/errors.js';

type Render = ScopeRules['renderError'];

/** How errors of the SaaS side look: JSON for applications, pages for people. */
export function saasErrors(pages: Pages): { api: Render; admin: Render } {
  return {
    // Pages are what a GET of them and the forms on them get; applications use the same paths.
    api: (error, request, requestId) =>
      routeRules(request.routeOptions).page && (request.method === 'GET' || isForm(request))
        ? pages.renderError(error, requestId)
        : renderEnvelope(error, requestId),

    admin: (error, { headers }, requestId) =>
      wantsPage(headers.accept) ? pages.renderError(error, requestId) : renderEnvelope(error, requestId),
  };
}
