import { Option } from 'commander';
import { parseList } from '../../src/core/config/options.js';
import { ID_TOKEN_ALGORITHMS, type IdTokenAlgorithm } from '../../src/idp/provisioning/clients.js';
import { clientView } from '../../src/idp/provisioning/schemas.js';
import { KINDS, type Kind } from '../../src/idp/provisioning/store.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { displayName, isYes, parseKinds, readJson, yesOrNo } from '../options.js';
import { COMMAND_SOURCE, printList, withProvisioning } from '../provisioning.js';
import { answer, fail } from '../terminal.js';

interface DescribeOptions extends CommonOptions {
  name?: string;
  postLogoutUris?: string[];
  kinds?: Kind[];
  admitGroups?: string[];
  groups?: string;
  claims?: string;
  logo?: string;
  backchannelLogoutUri?: string;
  idTokenAlg?: IdTokenAlgorithm;
  jwks?: string;
  jwksUri?: string;
  profile?: 'fapi2' | 'none';
}

type CreateOptions = DescribeOptions & { public?: true; trusted?: true; strict?: true; device?: true };
type UpdateOptions = DescribeOptions & {
  redirectUris?: string[];
  trusted?: 'yes' | 'no';
  strict?: 'yes' | 'no';
  device?: 'yes' | 'no';
};
type RotateOptions = CommonOptions & { atOnce?: true };

const CREATE = `Register an application and show its secret once. People and agents can sign in to it unless --kinds \
limits it to one of them.`;

const SHOWN_ONCE = 'The secret is shown only once.';

export function define(group: CommandLine): void {
  group.examples(
    'idp client create https://app.example.com/callback --name "My app"',
    'idp client update cid_… --name "My app" --trusted yes',
    'idp client rotate cid_…',
  );
  describe(group.command('create'))
    .summary('Register an application and show its secret once')
    .description(CREATE)
    .argument('[redirect-uris]', 'Redirect URIs, separated by commas; optional with --device', parseList)
    .option('--public', 'The application cannot keep a secret: it gets none and has to use PKCE')
    .option('--trusted', 'Skip consent for people who are signed in')
    .option('--strict', 'Require PKCE, and the sign-in form instead of HTTP Basic for people')
    .option('--device', 'People may sign in on devices without a browser, by a code (IDP_DEVICE_FLOW)')
    .examples(
      'idp client create https://app.example.com/callback --name "My app"',
      'idp client create http://127.0.0.1/callback --public --kinds agent',
      'idp client create --device --public --kinds human --name "My TV app"',
    )
    .action(create);
  group
    .command('list')
    .description('List all applications')
    .examples('idp client list', 'idp client list --json')
    .action((options: CommonOptions) =>
      printList(options, {
        name: 'clients',
        columns: ['client_id', 'client_name', 'redirect_uris'],
        viewOf: clientView,
        page: ({ clients }, after) => clients.list(after),
      }),
    );
  describe(group.command('update'))
    .description('Change the given fields of an application')
    .argument('<client-id>')
    .option('--redirect-uris <uris>', 'New redirect URIs, separated by commas', parseList)
    .addOption(yesOrNo('--trusted', 'Whether to skip consent for people who are signed in'))
    .addOption(
      yesOrNo('--strict', 'Whether to require PKCE, and the sign-in form instead of HTTP Basic for people'),
    )
    .addOption(yesOrNo('--device', 'Whether people may sign in on devices without a browser'))
    .examples('idp client update cid_… --name "My app" --trusted yes')
    .action(update);
  group
    .command('rotate')
    .description('Show a new secret once; the old one works for another 24 hours')
    .argument('<client-id>')
    .option('--at-once', 'End the old secret now, for instance because it has leaked')
    .examples('idp client rotate cid_…', 'idp client rotate cid_… --at-once')
    .action(rotate);
  group
    .command('delete')
    .description('Delete an application; sign-in there stops and its tokens end')
    .argument('<client-id>')
    .examples('idp client delete cid_…')
    .action((clientId: string, options: CommonOptions) =>
      withProvisioning({ create: false }, async ({ clients }) => {
        const deleted = await clients.delete(clientId, COMMAND_SOURCE);
        answer(options, clientView(deleted ?? unknown(clientId)));
      }),
    );
}

function describe(command: CommandLine): CommandLine {
  return command
    .option('--name <text>', 'Name of the application, shown on its sign-in page')
    .option(
      '--post-logout-uris <uris>',
      'Where people may return after logout, separated by commas',
      parseList,
    )
    .option('--kinds <kinds>', 'Who may sign in: human, agent or both', parseKinds)
    .option(
      '--claims <claims>',
      'Claims from metadata (idp principal update), like department,level:number=grade; an empty text removes them',
    )
    .option('--admit-groups <names>', 'Groups that alone may sign in; an empty list admits all', parseList)
    .option(
      '--groups <filter>',
      'Groups that it gets with the scope groups: all, none, or names like admins,staff=Employees',
    )
    .option(
      '--backchannel-logout-uri <uri>',
      'Address that is notified when a session ends; an empty one removes it',
    )
    .addOption(
      new Option(
        '--id-token-alg <alg>',
        'Signature of its id_tokens; ES256 needs IDP_ES256_KEY, here and on the server',
      ).choices(ID_TOKEN_ALGORITHMS),
    )
    .option('--jwks <file>', 'File with its public keys as a JWK Set: it signs in with a key, not a secret')
    .option('--jwks-uri <url>', 'https address where it publishes these keys')
    .addOption(
      new Option(
        '--profile <profile>',
        'fapi2: require pushed requests, PKCE, DPoP and keys (FAPI 2.0); none to remove it',
      ).choices(['fapi2', 'none']),
    )
    .option('--logo <url>', 'https address of an image for its sign-in page; an empty one removes it');
}

/** What the options of both commands say about the application. */
const fieldsOf = (options: DescribeOptions, command: CommandLine) => ({
  ...displayName(command, options),
  postLogoutRedirectUris: options.postLogoutUris,
  principalKinds: options.kinds,
  admittedGroups: options.admitGroups,
  groupsClaim: options.groups,
  claims: options.claims,
  profile: options.profile === 'none' ? ('' as const) : options.profile,
  idTokenAlg: options.idTokenAlg,
  ...readKeys(command, options),
  logoUri: options.logo,
  backchannelLogoutUri: options.backchannelLogoutUri,
});

/** The public keys in the file, or where they are published. */
function readKeys(command: CommandLine, { jwks, jwksUri }: DescribeOptions) {
  if (jwksUri !== undefined || jwks === undefined) return { jwksUri, jwks };
  const set = readJson(command, jwks);
  // One key is a set of one.
  const isKey = typeof set === 'object' && set !== null && 'kty' in set;
  return { jwks: isKey ? { keys: [set] } : set };
}

async function create(
  redirectUris: string[] | undefined,
  options: CreateOptions,
  command: CommandLine,
): Promise<void> {
  if (!redirectUris && !options.device) {
    command.error('error: redirect URIs are missing, like https://app.example.com/callback');
  }
  const given = fieldsOf(options, command);
  const input = {
    ...given,
    name: given.name ?? '',
    redirectUris: redirectUris ?? [],
    postLogoutRedirectUris: given.postLogoutRedirectUris ?? [],
    principalKinds: given.principalKinds ?? [...KINDS],
    isPublic: options.public === true,
    trusted: options.trusted === true,
    strict: options.strict === true,
    device: options.device === true,
  };
  await withProvisioning({ create: true }, async ({ clients }) => {
    const { client, secret } = await clients.create(input, COMMAND_SOURCE);
    if (secret === null) return answer(options, clientView(client));
    answer(options, { ...clientView(client), client_secret: secret }, SHOWN_ONCE);
  });
}

async function update(clientId: string, options: UpdateOptions, command: CommandLine): Promise<void> {
  const change = {
    ...fieldsOf(options, command),
    redirectUris: options.redirectUris,
    trusted: isYes(options.trusted),
    strict: isYes(options.strict),
    device: isYes(options.device),
  };
  if (Object.values(change).every((value) => value === undefined)) {
    command.error('error: no change is given. Use at least one option, like --name "My app".');
  }
  await withProvisioning({ create: false }, async ({ clients }) => {
    const updated = await clients.update(clientId, change, COMMAND_SOURCE);
    answer(options, clientView(updated ?? unknown(clientId)));
  });
}

async function rotate(clientId: string, { atOnce, ...options }: RotateOptions): Promise<void> {
  await withProvisioning({ create: false }, async ({ clients }) => {
    const client = (await clients.find(clientId)) ?? unknown(clientId);
    if (client.secretHash === undefined)
      fail(1, `${clientId} has no secret: it is public or signs in with a key.`);
    const secret = await clients.rotate(clientId, { atOnce: atOnce === true }, COMMAND_SOURCE);
    if (secret === null) fail(1, `${clientId} was changed at the same time. Check it and try again.`);
    answer(options, { client_id: clientId, client_secret: secret }, SHOWN_ONCE);
  });
}

const unknown = (clientId: string): never => fail(1, `There is no client ${clientId}.`);
