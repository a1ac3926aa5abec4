import type { FastifyTypebox } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { registerList } from '../../shared/console-kit/lists.js';
import type { ResourceDocument } from '../resources/store.js';
import type { ConsoleServices } from './sources.js';

/** The page of the list, which has no entry in the navigation. */
export const RESOURCES = 'resources';

/** The APIs for which access tokens are issued. Only commands on the host change them. */
export async function resourcesPlugin(
  fastify: FastifyTypebox,
  { console, sources }: ConsoleServices,
): Promise<void> {
  registerList<ResourceDocument>(fastify, console, {
    path: RESOURCES,
    section: 'clients',
    title: 'APIs',
    intro:
      'The APIs for which applications and agents get access tokens. The command idp resource on the host changes them.',
    columns: [
      { label: 'Name', text: ({ name }) => name },
      { label: 'Identifier', text: ({ identifier }) => identifier, kind: 'code' },
      {
        label: 'Scopes',
        text: ({ scopes }) =>
          scopes.map(({ name, sensitive }) => (sensitive ? `${name} (sensitive)` : name)).join(', '),
      },
      { label: 'Tokens for', text: ({ principalKinds }) => principalKinds.join(' and ') },
      {
        label: 'Self-registered',
        text: ({ admitsSelfRegistered: who }) => (who === true ? 'yes' : (who ?? 'no')),
      },
      {
        label: 'Token lifetime in seconds',
        text: (resource) => resource.tokenLifetimeSeconds,
        kind: 'number',
      },
      { label: 'Signature', text: ({ algorithms }) => algorithms?.[0] ?? 'EdDSA' },
      { label: 'Changed', text: ({ updatedAt }) => toTimestamp(updatedAt), kind: 'time' },
    ],
    read: ({ after, limit }) => sources.resources.list(after, limit),
    empty: 'No API is registered. See idp resource add.',
  });
}
