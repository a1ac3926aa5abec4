import { readFileSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { parseList } from '../../src/core/config/options.js';
import { withoutByteOrderMark } from '../../src/core/kernel/text.js';
import { ID_TOKEN_ALGORITHMS, type IdTokenAlgorithm } from '../../src/idp/provisioning/clients.js';
import { clientView } from '../../src/idp/provisioning/schemas.js';
import { KINDS, type Kind } from '../../src/idp/provisioning/store.js';
import { type CommonOptions, examples } from '../command.js';
import { displayName, parseKinds, yesOrNo } from '../options.js';
import type { Program } from '../program.js';
import { allPages, COMMAND_SOURCE, withProvisioning } from '../provisioning.js';
import { answer, answerList, fail } from '../terminal.js';

interface DescribeOptions extends CommonOptions {
  name?: string;
  postLogoutUris?: string[];
  kinds?: Kind[];
  logo?: string;
  backchannelLogoutUri?: string;
  idTokenAlg?: IdTokenAlgorithm;
  jwks?: string;
  jwksUri?: string;
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

export function define(group: Command, program: Program): void {
  group.addHelpText(
    'after',
    examples(
      'idp client create https://app.example.com/callback --name "My app"',
      'idp client update cid_… --name "My app" --trusted yes',
      'idp client rotate cid_…',
    ),
  );
  describe(group.command('create'))
    .summary('Register an application and show its secret once')
    .description(CREATE)
    .argument('[redirect-uris]', 'Redirect URIs, separated by commas; optional with --device', parseList)
    .option('--public', 'The application cannot keep a secret: it gets none and has to use PKCE')
    .option('--trusted', 'Skip consent for people who are signed in')
    .option('--strict', 'Require PKCE, and the sign-in form instead of HTTP Basic for people')
    .option('--device', 'People may sign in on devices without a browser, by a code (IDP_DEVICE_FLOW)')
    .addHelpText(
      'after',
      examples(
        'idp client create https://app.example.com/callback --name "My app"',
        'idp client create http://127.0.0.1/callback --public --kinds agent',
        'idp client create --device --public --kinds human --name "My TV app"',
      ),
    )
    .action((redirectUris: string[] | undefined, options: CreateOptions, command: Command) =>
      create(program, redirectUris, options, command),
    );
  group
    .command('list')
    .description('List all applications')
    .addHelpText('after', examples('idp client list', 'idp client list --json'))
    .action((options: CommonOptions) => list(program, options));
  describe(group.command('update'))
    .description('Change the given fields of an application')
    .argument('<client-id>')
    .option('--redirect-uris <uris>', 'New redirect URIs, separated by commas', parseList)
    .addOption(yesOrNo('--trusted', 'Whether to skip consent for people who are signed in'))
    .addOption(
      yesOrNo('--strict', 'Whether to require PKCE, and the sign-in form instead of HTTP Basic for people'),
    )
    .addOption(yesOrNo('--device', 'Whether people may sign in on devices without a browser'))
    .addHelpText('after', examples('idp client update cid_… --name "My app" --trusted yes'))
    .action((clientId: string, options: UpdateOptions, command: Command) =>
      update(program, clientId, options, command),
    );
  group
    .command('rotate')
    .description('Show a new secret once; the old one works for another 24 hours')
    .argument('<client-id>')
    .option('--at-once', 'End the old secret now, for instance because it has leaked')
    .addHelpText('after', examples('idp client rotate cid_…', 'idp client rotate cid_… --at-once'))
    .action((clientId: string, options: RotateOptions) => rotate(program, clientId, options));
  group
    .command('delete')
    .description('Delete an application; sign-in there stops and its tokens end')
    .argument('<client-id>')
    .addHelpText('after', examples('idp client delete cid_…'))
    .action((clientId: string, options: CommonOptions) => remove(program, clientId, options));
}

function describe(command: Command): Command {
  return command
    .option('--name <text>', 'Name of the application, shown on its sign-in page')
    .option(
      '--post-logout-uris <uris>',
      'Where people may return after logout, separated by commas',
      parseList,
    )
    .option('--kinds <kinds>', 'Who may sign in: human, agent or both', parseKinds)
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
    .option('--logo <url>', 'https address of an image for its sign-in page; an empty one removes it');
}

/** The public keys in the file, or where they are published. */
function readKeys(command: Command, { jwks, jwksUri }: DescribeOptions) {
  if (jwksUri !== undefined) return { jwksUri, ...(jwks !== undefined && { jwks }) };
  if (jwks === undefined) return {};
  try {
    const set: unknown = JSON.parse(withoutByteOrderMark(readFileSync(jwks, 'utf8')));
    // One key is a set of one.
    const isKey = typeof set === 'object' && set !== null && 'kty' in set;
    return { jwks: isKey ? { keys: [set] } : set };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return command.error(`error: the file of --jwks cannot be read as JSON: ${reason}`);
  }
}

async function create(
  program: Program,
  redirectUris: string[] | undefined,
  options: CreateOptions,
  command: Command,
): Promise<void> {
  if (!redirectUris && !options.device) {
    command.error('error: redirect URIs are missing, like https://app.example.com/callback');
  }
  const input = {
    name: '',
    ...displayName(command, options),
    redirectUris: redirectUris ?? [],
    postLogoutRedirectUris: options.postLogoutUris ?? [],
    isPublic: options.public === true,
    principalKinds: options.kinds ?? [...KINDS],
    trusted: options.trusted === true,
    strict: options.strict === true,
    device: options.device === true,
    ...(options.idTokenAlg && { idTokenAlg: options.idTokenAlg }),
    ...readKeys(command, options),
    ...(options.logo !== undefined && { logoUri: options.logo }),
    ...(options.backchannelLogoutUri !== undefined && {
      backchannelLogoutUri: options.backchannelLogoutUri,
    }),
  };
  await withProvisioning(program, { create: true }, async ({ clients }) => {
    const { client, secret } = await clients.create(input, COMMAND_SOURCE);
    if (secret === null) return answer(options, clientView(client));
    answer(options, { ...clientView(client), client_secret: secret }, SHOWN_ONCE);
  });
}

function list(program: Program, options: CommonOptions): Promise<void> {
  return withProvisioning(program, { create: false }, async ({ clients }) => {
    const found = await allPages((after) => clients.list(after));
    answerList(options, 'clients', found.map(clientView), ['client_id', 'client_name', 'redirect_uris']);
  });
}

async function update(
  program: Program,
  clientId: string,
  options: UpdateOptions,
  command: Command,
): Promise<void> {
  const { redirectUris, postLogoutUris, kinds, trusted, strict, device } = options;
  const { logo, backchannelLogoutUri, idTokenAlg } = options;
  const change = {
    ...displayName(command, options),
    ...(redirectUris && { redirectUris }),
    ...(postLogoutUris && { postLogoutRedirectUris: postLogoutUris }),
    ...(kinds && { principalKinds: kinds }),
    ...(trusted && { trusted: trusted === 'yes' }),
    ...(strict && { strict: strict === 'yes' }),
    ...(device && { device: device === 'yes' }),
    ...(logo !== undefined && { logoUri: logo }),
    ...(idTokenAlg && { idTokenAlg }),
    ...readKeys(command, options),
    ...(backchannelLogoutUri !== undefined && { backchannelLogoutUri }),
  };
  if (Object.keys(change).length === 0) {
    command.error('error: no change is given. Use at least one option, like --name "My app".');
  }
  await withProvisioning(program, { create: false }, async ({ clients }) => {
    answer(
      options,
      clientView((await clients.update(clientId, change, COMMAND_SOURCE)) ?? unknown(clientId)),
    );
  });
}

function rotate(program: Program, clientId: string, options: RotateOptions): Promise<void> {
  return withProvisioning(program, { create: false }, async ({ clients }) => {
    const client = (await clients.find(clientId)) ?? unknown(clientId);
    if (client.secretHash === undefined)
      fail(1, `${clientId} has no secret: it is public or signs in with a key.`);
    const secret = await clients.rotate(clientId, { atOnce: options.atOnce === true }, COMMAND_SOURCE);
    if (secret === null) fail(1, `${clientId} was changed at the same time. Check it and try again.`);
    answer(options, { client_id: clientId, client_secret: secret }, SHOWN_ONCE);
  });
}

function remove(program: Program, clientId: string, options: CommonOptions): Promise<void> {
  return withProvisioning(program, { create: false }, async ({ clients }) => {
    answer(options, clientView((await clients.delete(clientId, COMMAND_SOURCE)) ?? unknown(clientId)));
  });
}

function unknown(clientId: string): never {
  return fail(1, `There is no client ${clientId}.`);
}
