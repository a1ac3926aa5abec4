import { createOutageLog } from '../../src/core/http/outage-log.js';
import type { PluginRules } from '../../src/core/http/routes.js';
import { renderEnvelope } from '../../src/core/kernel/errors.js';

/** The rules of a scope of a plugin, below `/x`, without guards. */
export const pluginRules = (more: Partial<PluginRules> = {}): PluginRules => ({
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
