import { type Static, Type } from 'typebox';
import { Envelope, ok } from '../../core/http/schemas.js';
import { access, type Scope } from '../../core/http/scope.js';
import { type Console, rootOf } from '../../shared/console-kit/console.js';
import { factsOf } from '../../shared/console-kit/facts.js';
import { tableOf } from '../../shared/console-kit/lists.js';

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
  scope: Scope,
  { console, installation }: { console: Console; installation: Installation },
): Promise<void> {
  const { version, node, environment, store, parts, commands } = installation;

  scope.get('/help', { config: console.config }, async (request, reply) => {
    const root = rootOf(request);
    const view = {
      title: 'Help',
      facts: factsOf([
        { label: 'Version', text: `saas-backend ${version}` },
        { label: 'Runs on', text: `Node.js ${node}, ${environment}` },
        { label: 'Store', text: store },
        {
          label: 'Documentation',
          text: 'The folder docs of the package; docs/admin.md describes these pages.',
        },
      ]),
      actions: [],
      tables: [
        {
          id: 'parts',
          heading: 'Configuration',
          tableLabel: 'Configuration',
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
          id: 'commands',
          heading: 'Commands',
          tableLabel: 'Commands',
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
    };
    return console.send(request, reply, { template: 'console-detail', section: 'help', view });
  });

  scope.get(
    `${console.api}/help`,
    { config: access(console.access), schema: { response: { 200: Envelope(Installation) } } },
    async () => ok(installation),
  );
}
