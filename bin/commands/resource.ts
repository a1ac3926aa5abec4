import { InvalidArgumentError, Option } from 'commander';
import { parseList } from '../../src/core/config/options.js';
import {
  MAX_TOKEN_LIFETIME_SECONDS,
  MIN_TOKEN_LIFETIME_SECONDS,
  type ResourceInput,
} from '../../src/idp/resources/administration.js';
import { resourceView } from '../../src/idp/resources/schemas.js';
import {
  ACCESS_TOKEN_ALGORITHMS,
  type AccessTokenAlgorithm,
  type ApprovalType,
  FIELD_KINDS,
  KINDS,
  type Kind,
  type ResourceDocument,
} from '../../src/idp/resources/store.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { displayName, parseInteger, parseKinds, yesOrNo } from '../options.js';
import { COMMAND_SOURCE, printList, withProvisioning } from '../provisioning.js';
import { answer, fail } from '../terminal.js';

interface DescribeOptions extends CommonOptions {
  name?: string;
  scopes?: ResourceInput['scopes'];
  lifetime?: number;
  kinds?: Kind[];
  admitGroups?: string[];
  groups?: string;
  selfRegistered?: 'yes' | 'no' | 'people';
  sensitive?: string[];
  dpop?: 'yes' | 'no';
  alg?: AccessTokenAlgorithm;
}

const ADD = `Register an API for which idp issues access tokens, and show its secret once. Applications name it with the \
parameter resource. People and agents that registered themselves get no token, unless --self-registered is yes, or people for people alone. The API checks the tokens itself, or asks idp about them with its client ID and secret.`;

const SHOWN_ONCE = 'The secret is shown only once.';

export function define(group: CommandLine): void {
  group.examples(
    'idp resource add https://api.example.com --scopes files:read,files:write',
    'idp resource list',
    'idp resource remove https://api.example.com',
  );
  describe(group.command('add'))
    .summary('Register an API and show its secret once')
    .description(ADD)
    .argument('<uri>', 'Identifier of the API: the audience of its tokens')
    .examples(
      `idp resource add https://api.example.com --name "Files" \\
      --scopes files:read="Read your files",files:write="Change your files"`,
    )
    .action(add);
  group
    .command('list')
    .description('List all APIs')
    .examples('idp resource list', 'idp resource list --json')
    .action((options: CommonOptions) =>
      printList(options, {
        name: 'resources',
        columns: ['resource', 'name', 'scopes', 'principal_kinds', 'self_registered'],
        viewOf,
        page: ({ resources }, after) => resources.list(after),
      }),
    );
  describe(group.command('update'))
    .description('Change the given fields of an API; --scopes replaces all of them')
    .argument('<uri>')
    .examples('idp resource update https://api.example.com --lifetime 300')
    .action(update);
  group
    .command('rotate')
    .description('Show a new secret once; the old one works for another 24 hours')
    .argument('<uri>')
    .option('--at-once', 'End the old secret now, for instance because it has leaked')
    .examples('idp resource rotate https://api.example.com')
    .action((uri: string, { atOnce, ...options }: CommonOptions & { atOnce?: true }) =>
      withProvisioning({ create: false }, async ({ resources }) => {
        const rotated = await resources.rotate(uri, { atOnce: atOnce === true }, COMMAND_SOURCE);
        const { resource, secret } =
          rotated ?? fail(1, `There is no resource ${uri}, or another command is rotating its secret.`);
        answer(options, { resource: uri, client_id: resource.id, client_secret: secret }, SHOWN_ONCE);
      }),
    );
  defineApproval(group.command('approval'));
  group
    .command('remove')
    .description('Remove an API; no further token is issued for it')
    .argument('<uri>')
    .examples('idp resource remove https://api.example.com')
    .action((uri: string, options: CommonOptions) =>
      withProvisioning({ create: false }, async ({ resources }) => {
        const removed = await resources.remove(uri, COMMAND_SOURCE);
        answer(options, viewOf(removed ?? unknown(uri), options));
      }),
    );
}

const ADD_APPROVAL = `Declare a kind of action for which the API demands the approval of a person (RFC 9396). Agents ask for it \
with authorization_details of this type, whose fields are text, number or boolean, optional with a question mark. Needs IDP_APPROVALS=true.`;

function defineApproval(group: CommandLine): void {
  group
    .description('Manage the kinds of actions that people approve: add, remove')
    .examples('idp resource approval remove https://api.example.com payment');
  group
    .command('add')
    .summary('Declare a kind of action that people approve')
    .description(ADD_APPROVAL)
    .argument('<uri>')
    .argument('<type>', 'Its name in authorization_details')
    .requiredOption('--sentence <text>', 'What the person reads; braces name fields')
    .requiredOption('--fields <fields>', 'Fields of the details, separated by commas', parseFields)
    .examples(
      `idp resource approval add https://api.example.com payment \\
      --sentence "Pay {amount} {currency} to {creditor}" \\
      --fields amount=number,currency=text,creditor=text,reference=text?`,
    )
    .action((uri: string, name: string, { sentence, fields, ...options }: CommonOptions & ApprovalType) =>
      changeApprovals(uri, { add: { name, sentence, fields } }, options),
    );
  group
    .command('remove')
    .description('Remove a kind of action; what was not decided yet is not issued any more')
    .argument('<uri>')
    .argument('<type>')
    .examples('idp resource approval remove https://api.example.com payment')
    .action((uri: string, remove: string, options: CommonOptions) =>
      changeApprovals(uri, { remove }, options),
    );
}

const changeApprovals = (
  uri: string,
  change: { add: ApprovalType } | { remove: string },
  options: CommonOptions,
): Promise<void> =>
  withProvisioning({ create: false }, async ({ resources }) => {
    const updated = await resources.changeApprovals(uri, change, COMMAND_SOURCE);
    answer(options, viewOf(updated ?? unknown(uri), options));
  });

const parseFields = (text: string): ApprovalType['fields'] =>
  parseList(text).map((part) => {
    const [, name = '', kind, mark] = /^(\w+)=(\w+)(\?)?$/.exec(part) ?? [];
    const known = FIELD_KINDS.find((one) => one === kind);
    if (!known) throw new InvalidArgumentError(`Use name=kind, with one of ${FIELD_KINDS.join(', ')}.`);
    return { name, kind: known, ...(mark && { optional: true as const }) };
  });

function describe(command: CommandLine): CommandLine {
  const [least, most] = [MIN_TOKEN_LIFETIME_SECONDS, MAX_TOKEN_LIFETIME_SECONDS];
  return command
    .option('--name <text>', 'Name of the API, shown to people who allow access to it')
    .option('--scopes <scopes>', 'Scopes, separated by commas, each with =description', parseScopes)
    .option(
      '--lifetime <seconds>',
      `Lifetime of access tokens, ${least} to ${most} seconds`,
      parseInteger(least, most, 300),
    )
    .option('--kinds <kinds>', 'Who may get a token: human, agent or both', parseKinds)
    .option('--admit-groups <names>', 'Groups that alone get a token; an empty list admits all', parseList)
    .option('--groups <filter>', 'Groups in its tokens: all, none, or names like admins,staff=Employees')
    .addOption(
      new Option(
        '--self-registered <who>',
        'Whether people and agents that registered themselves get tokens, or only people; no by default',
      ).choices(['yes', 'no', 'people']),
    )
    .option('--sensitive <scopes>', 'Scopes that are marked as sensitive; empty for none', parseList)
    .addOption(yesOrNo('--dpop', 'Whether its tokens work only with a key that the application proves'))
    .addOption(
      new Option(
        '--alg <alg>',
        'Signature of its access tokens; ES256 needs IDP_ES256_KEY, here and on the server',
      ).choices(ACCESS_TOKEN_ALGORITHMS),
    );
}

/** A comma separates two scopes where the name of a scope follows it, and not a space. */
function parseScopes(text: string): ResourceInput['scopes'] {
  const parts = text.split(/,(?=[^\s,=]+(?:[=,]|$))/).filter((part) => part !== '');
  return parts.map((part) => {
    const [name = '', ...description] = part.split('=');
    if (name.trim() === '') throw new InvalidArgumentError('Use name=description, separated by commas.');
    return { name: name.trim(), description: description.join('=').trim() || name.trim() };
  });
}

const changeOf = (
  { selfRegistered, ...options }: DescribeOptions,
  command: CommandLine,
): Partial<ResourceInput> => ({
  ...displayName(command, options),
  ...(options.scopes && { scopes: options.scopes }),
  ...(options.lifetime !== undefined && { tokenLifetimeSeconds: options.lifetime }),
  ...(options.kinds && { principalKinds: options.kinds }),
  ...(options.admitGroups && { admittedGroups: options.admitGroups }),
  ...(options.groups !== undefined && { groupsClaim: options.groups }),
  ...(selfRegistered && {
    admitsSelfRegistered: selfRegistered === 'people' ? selfRegistered : selfRegistered === 'yes',
  }),
  ...(options.sensitive && { sensitive: options.sensitive }),
  ...(options.dpop && { requiresDpop: options.dpop === 'yes' }),
  ...(options.alg && { algorithm: options.alg }),
});

async function add(uri: string, options: DescribeOptions, command: CommandLine): Promise<void> {
  const input: ResourceInput = {
    name: URL.canParse(uri) ? new URL(uri).host : uri,
    scopes: [],
    tokenLifetimeSeconds: MAX_TOKEN_LIFETIME_SECONDS,
    principalKinds: KINDS,
    admitsSelfRegistered: false,
    sensitive: [],
    requiresDpop: false,
    ...changeOf(options, command),
  };
  await withProvisioning({ create: true }, async ({ resources }) => {
    const { resource, secret } = await resources.add(uri, input, COMMAND_SOURCE);
    answer(options, { ...viewOf(resource, options), client_secret: secret }, SHOWN_ONCE);
  });
}

async function update(uri: string, options: DescribeOptions, command: CommandLine): Promise<void> {
  const change = changeOf(options, command);
  if (Object.keys(change).length === 0) {
    command.error('error: no change is given. Use at least one option, like --lifetime 300.');
  }
  await withProvisioning({ create: false }, async ({ resources }) => {
    const updated = await resources.update(uri, change, COMMAND_SOURCE);
    answer(options, viewOf(updated ?? unknown(uri), options));
  });
}

/** As JSON with the descriptions of the scopes; as text with their names. */
function viewOf(resource: ResourceDocument, { json }: CommonOptions): Record<string, unknown> {
  const view = resourceView(resource);
  if (json) return view;
  return {
    ...view,
    scopes: view.scopes.map(({ name }) => name),
    approval_types: view.approval_types.map(({ type }) => type),
    sensitive: view.scopes.flatMap(({ name, sensitive }) => (sensitive ? [name] : [])),
  };
}

const unknown = (uri: string): never => fail(1, `There is no resource ${uri}.`);
