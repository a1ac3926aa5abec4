import { type Command, InvalidArgumentError } from 'commander';
import { parseList } from '../../src/core/config/options.js';
import {
  MAX_TOKEN_LIFETIME_SECONDS,
  MIN_TOKEN_LIFETIME_SECONDS,
  type ResourceInput,
} from '../../src/idp/resources/administration.js';
import { resourceView } from '../../src/idp/resources/schemas.js';
import { KINDS, type Kind, type ResourceDocument } from '../../src/idp/resources/store.js';
import { type CommonOptions, examples } from '../command.js';
import { displayName, parseInteger, parseKinds, yesOrNo } from '../options.js';
import type { Program } from '../program.js';
import { allPages, COMMAND_SOURCE, withProvisioning } from '../provisioning.js';
import { answer, answerList, fail } from '../terminal.js';

interface DescribeOptions extends CommonOptions {
  name?: string;
  scopes?: ResourceInput['scopes'];
  lifetime?: number;
  kinds?: Kind[];
  selfRegistered?: 'yes' | 'no';
  sensitive?: string[];
  dpop?: 'yes' | 'no';
}

const ADD = `Register an API for which idp issues access tokens, and show its secret once. Applications name it with the \
parameter resource. People and agents that registered themselves get no token, unless --self-registered is yes. The API checks the tokens itself, or asks idp about them with its client ID and secret.`;

const SHOWN_ONCE = 'The secret is shown only once.';

export function define(group: Command, program: Program): void {
  group.addHelpText(
    'after',
    examples(
      'idp resource add https://api.example.com --scopes files:read,files:write',
      'idp resource list',
      'idp resource remove https://api.example.com',
    ),
  );
  describe(group.command('add'))
    .summary('Register an API and show its secret once')
    .description(ADD)
    .argument('<uri>', 'Identifier of the API: the audience of its tokens')
    .addHelpText(
      'after',
      examples(
        `idp resource add https://api.example.com --name "Files" \\
      --scopes files:read="Read your files",files:write="Change your files"`,
      ),
    )
    .action((identifier: string, options: DescribeOptions, command: Command) =>
      add(program, identifier, options, command),
    );
  group
    .command('list')
    .description('List all APIs')
    .addHelpText('after', examples('idp resource list', 'idp resource list --json'))
    .action((options: CommonOptions) => list(program, options));
  describe(group.command('update'))
    .description('Change the given fields of an API; --scopes replaces all of them')
    .argument('<uri>')
    .addHelpText('after', examples('idp resource update https://api.example.com --lifetime 300'))
    .action((identifier: string, options: DescribeOptions, command: Command) =>
      update(program, identifier, options, command),
    );
  group
    .command('rotate')
    .description('Show a new secret once; the old one works for another 24 hours')
    .argument('<uri>')
    .option('--at-once', 'End the old secret now, for instance because it has leaked')
    .addHelpText('after', examples('idp resource rotate https://api.example.com'))
    .action((identifier: string, options: CommonOptions & { atOnce?: true }) =>
      rotate(program, identifier, options),
    );
  group
    .command('remove')
    .description('Remove an API; no further token is issued for it')
    .argument('<uri>')
    .addHelpText('after', examples('idp resource remove https://api.example.com'))
    .action((identifier: string, options: CommonOptions) => remove(program, identifier, options));
}

function describe(command: Command): Command {
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
    .addOption(
      yesOrNo(
        '--self-registered',
        'Whether people and agents that registered themselves get tokens; no by default',
      ),
    )
    .option('--sensitive <scopes>', 'Scopes that are marked as sensitive; empty for none', parseList)
    .addOption(yesOrNo('--dpop', 'Whether its tokens work only with a key that the application proves'));
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

const changeOf = (options: DescribeOptions, command: Command): Partial<ResourceInput> => ({
  ...displayName(command, options),
  ...(options.scopes && { scopes: options.scopes }),
  ...(options.lifetime !== undefined && { tokenLifetimeSeconds: options.lifetime }),
  ...(options.kinds && { principalKinds: options.kinds }),
  ...(options.selfRegistered && { admitsSelfRegistered: options.selfRegistered === 'yes' }),
  ...(options.sensitive && { sensitive: options.sensitive }),
  ...(options.dpop && { requiresDpop: options.dpop === 'yes' }),
});

async function add(
  program: Program,
  identifier: string,
  options: DescribeOptions,
  command: Command,
): Promise<void> {
  const input: ResourceInput = {
    name: URL.canParse(identifier) ? new URL(identifier).host : identifier,
    scopes: [],
    tokenLifetimeSeconds: MAX_TOKEN_LIFETIME_SECONDS,
    principalKinds: KINDS,
    admitsSelfRegistered: false,
    sensitive: [],
    requiresDpop: false,
    ...changeOf(options, command),
  };
  await withProvisioning(program, { create: true }, async ({ resources }) => {
    const { resource, secret } = await resources.add(identifier, input, COMMAND_SOURCE);
    answer(options, { ...viewFor(options, resource), client_secret: secret }, SHOWN_ONCE);
  });
}

function list(program: Program, options: CommonOptions): Promise<void> {
  return withProvisioning(program, { create: false }, async ({ resources }) => {
    const found = await allPages((after) => resources.list(after));
    const views = found.map((resource) => viewFor(options, resource));
    answerList(options, 'resources', views, [
      'resource',
      'name',
      'scopes',
      'principal_kinds',
      'self_registered',
    ]);
  });
}

async function update(
  program: Program,
  identifier: string,
  options: DescribeOptions,
  command: Command,
): Promise<void> {
  const change = changeOf(options, command);
  if (Object.keys(change).length === 0) {
    command.error('error: no change is given. Use at least one option, like --lifetime 300.');
  }
  await withProvisioning(program, { create: false }, async ({ resources }) => {
    const updated = await resources.update(identifier, change, COMMAND_SOURCE);
    answer(options, viewFor(options, updated ?? unknown(identifier)));
  });
}

function rotate(
  program: Program,
  identifier: string,
  options: CommonOptions & { atOnce?: true },
): Promise<void> {
  return withProvisioning(program, { create: false }, async ({ resources }) => {
    const rotated = await resources.rotate(identifier, { atOnce: options.atOnce === true }, COMMAND_SOURCE);
    const { resource, secret } =
      rotated ?? fail(1, `There is no resource ${identifier}, or another command is rotating its secret.`);
    answer(options, { resource: identifier, client_id: resource.id, client_secret: secret }, SHOWN_ONCE);
  });
}

function remove(program: Program, identifier: string, options: CommonOptions): Promise<void> {
  return withProvisioning(program, { create: false }, async ({ resources }) => {
    const removed = await resources.remove(identifier, COMMAND_SOURCE);
    answer(options, viewFor(options, removed ?? unknown(identifier)));
  });
}

/** As JSON with the descriptions of the scopes; as text with their names. */
function viewFor({ json }: CommonOptions, resource: ResourceDocument): Record<string, unknown> {
  const view = resourceView(resource);
  if (json) return view;
  return {
    ...view,
    scopes: view.scopes.map(({ name }) => name),
    sensitive: view.scopes.flatMap(({ name, sensitive }) => (sensitive ? [name] : [])),
  };
}

function unknown(identifier: string): never {
  return fail(1, `There is no resource ${identifier}.`);
}
