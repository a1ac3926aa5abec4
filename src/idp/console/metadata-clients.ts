import type { TObject } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { toTimestampOrNull } from '../../core/http/schemas.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { registerAction } from '../../shared/console-kit/actions.js';
import { registerList } from '../../shared/console-kit/lists.js';
import type { ListedClient } from '../registration/client-ids.js';
import { type ConsoleServices, operatorSource } from './sources.js';

/** The page of the list, which has no entry in the navigation. */
export const METADATA_CLIENTS = 'metadata-clients';

/** Applications that publish their own metadata: what is known of them, and their refusal. */
export async function metadataClientsPlugin(
  fastify: FastifyTypebox,
  { console, sources: { metadataClients } }: ConsoleServices,
): Promise<void> {
  if (!metadataClients) return;
  registerList<ListedClient>(fastify, console, {
    path: METADATA_CLIENTS,
    section: 'clients',
    title: 'Applications with metadata documents',
    intro:
      'Applications to which people have signed in and which nobody has registered here. Their names are their own claims. To refuse a whole host, use IDP_CLIENT_ID_METADATA_DENIED_HOSTS.',
    search: {
      label: 'Host or client ID',
      hint: 'Finds client IDs by their beginning, like app.example.com.',
      maxLength: 512,
    },
    columns: [
      { label: 'Client ID', text: ({ clientId }) => clientId, kind: 'code' },
      { label: 'Host', text: ({ clientId }) => new URL(clientId).host },
      { label: 'Name', text: ({ name }) => name || null },
      { label: 'First used', text: ({ firstUsedAt }) => toTimestampOrNull(firstUsedAt), kind: 'time' },
      { label: 'Last used', text: ({ lastUsedAt }) => toTimestampOrNull(lastUsedAt), kind: 'time' },
      { label: 'Blocked', text: ({ blockedAt }) => toTimestampOrNull(blockedAt), kind: 'time' },
      {
        label: 'Change',
        text: ({ blockedAt }) => (blockedAt === undefined ? 'Block' : 'Admit'),
        href: ({ id, blockedAt }) =>
          `${METADATA_CLIENTS}/${id}/${blockedAt === undefined ? 'block' : 'admit'}`,
      },
    ],
    read: ({ search, after, limit }) => {
      const prefix = search && (/^https?:\/\//.test(search) ? search : `https://${search}`);
      return metadataClients.list({ ...(prefix && { prefix }), after, limit });
    },
    empty: 'Nobody has signed in to such an application.',
  });

  const changes = [
    {
      verb: 'block',
      button: 'Block',
      isBlocked: false,
      consequences:
        'Nobody can sign in to the application any more, and its tokens and delegations end. Another document of the same host is another application.',
      done: 'The application is blocked.',
    },
    {
      verb: 'admit',
      button: 'Admit',
      isBlocked: true,
      consequences: 'People can sign in to the application again. What has ended remains so.',
      done: 'The application is admitted.',
    },
  ];
  for (const { verb, button, isBlocked, consequences, done } of changes) {
    await registerAction<ListedClient, TObject>(fastify, console, {
      path: `${METADATA_CLIENTS}/:id/${verb}`,
      section: 'clients',
      consequences,
      button,
      done,
      title: ({ clientId }) => `${button} ${clientId}?`,
      async find({ id = '' }) {
        const client = await metadataClients.findListed(id);
        if (!client || (client.blockedAt !== undefined) !== isBlocked) throw httpErrors.NOT_FOUND();
        return client;
      },
      run: ({ id }, _, by) => metadataClients.setBlocked(id, !isBlocked, operatorSource(by)),
      returnTo: () => METADATA_CLIENTS,
    });
  }
}
