import { createOutageLog } from '../../src/core/http/outage-log.js';
import type { ScopeRules } from '../../src/core/http/scope.js';
import { renderEnvelope } from '../../src/core/kernel/errors.js';

/** The rules of a scope of a plugin, below `/x`, without guards. */
export const scopeRules = (more: Partial<ScopeRules> = {}): ScopeRules => ({
  conflictRemedy: '',
  prefix: '/x',
  guards: {},
  renderError: (error, _request, id) => renderEnvelope(error, id),
  requestId: () => 'req_1',
  https: () => false,
  isDraining: () => false,
  outages: createOutageLog(),
  bodyLimit: 1024,
  isPlugin: true,
  handlesNotFound: true,
  ...more,
});
