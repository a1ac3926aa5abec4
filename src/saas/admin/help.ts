import { type Static, Type } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import type { Console } from '../../shared/console-kit/console.js';
import { registerDetail } from '../../shared/console-kit/details.js';
import { tableOf } from '../../shared/console-kit/tables.js';

/** What runs, what is configured, and where the operator finds more. Contains no secret. */
export const Installation = Type.Object({
  version: Type.String(),
  node: Type.String(),
  environment: Type.Enum(['production', 'development']),
  store: Type.String(),
  parts: Type.Array(
    Type.Object({
      name: Type.String(),
      isConfigured: Type.Boolean(),
      /** How to configure it, as a sentence. */
      remedy: Type.String(),
      /** A file of the package. */
      documentation: Type.String(),
    }),
  ),
  commands: Type.Array(Type.Object({ command: Type.String(), purpose: Type.String() })),
});
export type Installation = Static<typeof Installation>;

/** The page for operators who need help. */
export async function helpPlugin(
  fastify: FastifyTypebox,
  { console, installation }: { console: Console; installation: Installation },
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
          text: 'The folder docs of the package; docs/admin.md describes these pages.',
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
