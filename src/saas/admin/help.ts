import type { FastifyTypebox } from '../../core/http/routes.js';
import { registerDetail } from '../../shared/console-kit/details.js';
import { tableOf } from '../../shared/console-kit/tables.js';
import { Installation } from './schemas.js';
import type { AdminServices } from './services.js';

/** The page for operators who need help. */
export async function helpPlugin(
  fastify: FastifyTypebox,
  { console, installation }: AdminServices,
): Promise<void> {
  registerDetail(fastify, console, {
    path: 'help',
    section: 'help',
    item: Installation,
    find: async () => installation,
    view: ({ version, node, environment, store, parts, commands }, root) => ({
      title: 'Help',
      facts: [
        { label: 'Version', text: `saas-backend ${version}` },
        { label: 'Runs on', text: `Node.js ${node}, ${environment}` },
        { label: 'Store', text: store },
        {
          label: 'Documentation',
          text: 'The folder docs of the package; docs/saas/admin.md describes these pages.',
        },
      ],
      tables: [
        {
          heading: 'Configuration',
          note: 'saas-backend doctor checks the whole configuration and explains each problem.',
          ...tableOf(
            [
              { label: 'Part', text: ({ name }) => name },
              {
                label: 'State',
                text: ({ isConfigured }) => (isConfigured ? 'configured' : 'not set'),
                kind: 'status',
              },
              { label: 'How to configure it', text: ({ remedy }) => remedy },
              { label: 'Documentation', text: ({ documentation }) => documentation, kind: 'code' },
            ],
            parts,
            root,
          ),
        },
        {
          heading: 'Commands',
          note: 'They run on the host, beside the server, with the same environment. --help shows their options.',
          ...tableOf(
            [
              { label: 'Command', text: ({ command }) => command, kind: 'code' },
              { label: 'Purpose', text: ({ purpose }) => purpose },
            ],
            commands,
            root,
          ),
        },
      ],
    }),
  });
}
