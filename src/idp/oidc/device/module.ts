import type { Pages } from '../../../core/http/pages.js';
import type { FastifyTypebox } from '../../../core/http/routes.js';
import type { Jobs } from '../../../core/ops/jobs.js';
import { createExpiryPurge } from '../../../core/ops/purge.js';
import type { Store } from '../../../core/storage/collection.js';
import type { ClientAuthDependencies } from '../client-auth.js';
import type { FirstPartySignIn } from '../first-party-sign-in.js';
import { type DevicePluginOptions, devicePlugin } from './plugin.js';
import { createDeviceFlow, type DeviceFlowDependencies } from './service.js';
import { deviceRequestCollection } from './store.js';

/** Sign-in on devices without a browser, which is loaded only if it is enabled. */
export type DeviceModule = ReturnType<typeof createDeviceModule>;

export type DeviceModuleDependencies = Omit<DeviceFlowDependencies, 'requests' | 'throttle'> &
  Pick<DevicePluginOptions, keyof ClientAuthDependencies | 'issuer'> & {
    store: Store;
    throttle: DeviceFlowDependencies['throttle'] & DevicePluginOptions['throttle'];
    jobs: Pick<Jobs, 'add'>;
  };

export function createDeviceModule({ store, jobs, ...deps }: DeviceModuleDependencies) {
  const requests = deviceRequestCollection(store);
  const flow = createDeviceFlow({ ...deps, requests });
  jobs.add('device-request-purge', createExpiryPurge(requests, deps.clock));
  return {
    poll: flow.poll,
    plugin: (fastify: FastifyTypebox, { pages, own }: { pages: Pages; own: FirstPartySignIn }) =>
      devicePlugin(fastify, { ...deps, flow, pages, own }),
  };
}
