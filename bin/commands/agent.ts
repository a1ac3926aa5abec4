import { parseList } from '../../src/core/config/options.js';
import { present } from '../../src/core/kernel/fields.js';
import type { ProvisioningAdministration } from '../../src/idp/administration.js';
import { permissionView } from '../../src/idp/permissions/schemas.js';
import { EVERY_AGENT } from '../../src/idp/permissions/store.js';
import type { AgentChange, AgentDetails } from '../../src/idp/provisioning/agents.js';
import { operatorView, principalView } from '../../src/idp/provisioning/schemas.js';
import { defineKeys, defineTrust } from '../agents/proofs.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { displayName, parseEnd, parseInteger, readJson } from '../options.js';
import {
  COMMAND_SOURCE,
  findPrincipal,
  listPrincipals,
  printList,
  refuseAgent,
  withPrincipal,
  withProvisioning,
} from '../provisioning.js';
import { answer, fail } from '../terminal.js';

interface DetailOptions extends CommonOptions, Omit<AgentDetails, 'expiresAt'> {
  expires?: number | 'never';
}

type MintOptions = DetailOptions & { name?: string; key?: string };

interface AllowOptions extends CommonOptions {
  scopes?: string[];
  until?: number;
  from?: string[];
  perHour?: number;
  delegatedOnly?: true;
}

const ALLOW = `Let an agent, the agents of a group, or every agent get access tokens for an API. Without it, an agent gets none. \
The new terms replace earlier ones.`;

const RECEIPT = `Print what agents did with one authorization: each audit record with the agent, who answers for it, the person, the API, \
its scopes and permissions, and all of it signed as a JWT that the keys of the provider verify.`;

const AGENT = "A handle, group:name, or '*' for every agent";

const SHOWN_ONCE = 'The password is shown only once.';

export function define(group: CommandLine): void {
  group.examples(
    'idp agent mint scout@agents.example --name Scout',
    'idp agent allow scout@agents.example https://api.example.com --scopes files:read',
    'idp agent rotate scout@agents.example',
    'idp agent key add scout@agents.example jwk.json',
    'idp agent trust list scout@agents.example',
  );
  withDetails(group.command('mint'))
    .description('Create an agent and show its password once')
    .argument('<handle>', 'Name that the agent signs in with')
    .option('--name <text>', 'Display name')
    .option('--key <file>', 'File with its public key as a JWK: the agent gets no password')
    .examples(
      'idp agent mint scout@agents.example --name Scout',
      'idp agent mint scout@agents.example --key jwk.json',
      'idp agent mint scout@agents.example --owner ada@example.com --purpose "Weekly reports"',
      'idp agent mint scout@agents.example --redirect-uris https://scout.example.com/callback',
    )
    .action(mint);
  withDetails(group.command('update'))
    .description(
      'Change who answers for an agent, what it is for, when it ends, or what it is as an OAuth client',
    )
    .argument('<handle>')
    .examples(
      'idp agent update scout@agents.example --owner group:research --expires 2027-01-31',
      'idp agent update scout@agents.example --client-metadata https://scout.example.com/client.json',
    )
    .action((handle: string, options: DetailOptions) =>
      withPrincipal(handle, async (agent, administration) => {
        const change = await changeOf(administration, options);
        const changed = await administration.agents.change(agent.id, change, COMMAND_SOURCE);
        answer(options, operatorView(changed ?? refuseAgent(agent)));
      }),
    );
  group
    .command('list')
    .description('List agents')
    .argument('[prefix]', 'List only handles that begin with this text')
    .examples('idp agent list', 'idp agent list scout --json')
    .action(listPrincipals('agents', 'agent'));
  definePermissions(group);
  group
    .command('rotate')
    .description('Give an agent a new password; the old one and all its tokens end at once')
    .argument('<handle>')
    .examples('idp agent rotate scout@agents.example')
    .action((name: string, options: CommonOptions) =>
      withPrincipal(name, async (agent, { principals }) => {
        const password = await principals.rotate(agent, COMMAND_SOURCE);
        if (password === null) refuseAgent(agent);
        answer(options, { sub: agent.id, handle: agent.handle, password }, SHOWN_ONCE);
      }),
    );
  group
    .command('receipt')
    .summary('Print what agents did with one authorization')
    .description(RECEIPT)
    .argument('<txn>', 'The claim txn of a token; audit records name it')
    .examples('idp agent receipt gr_0197…', 'idp agent receipt gr_0197… --json | jq -r .receipt')
    .action((txn: string, options: CommonOptions) =>
      withProvisioning({ create: false }, async ({ receipts }) => {
        if (!receipts) fail(1, 'Set IDP_ED25519_SEED as for the server: its key signs receipts.');
        const found = await receipts.of(txn);
        if (!found) fail(1, `The audit has no record of an agent with the txn ${txn}.`);
        const actions = options.json ? found.actions : JSON.stringify(found.actions, null, 2);
        answer(options, { ...found, actions });
      }),
    );
  defineKeys(group.command('key'));
  defineTrust(group.command('trust'));
}

const withDetails = (command: CommandLine): CommandLine =>
  command
    .option('--owner <person>', 'Who answers for it: a handle or group:name; it stops when they leave')
    .option('--purpose <text>', 'What it is for')
    .option('--expires <time>', 'When it ends, like 2027-01-31; never to remove it', (text: string) =>
      text === 'never' ? text : parseEnd(text),
    )
    .option(
      '--redirect-uris <uris>',
      'Where people who let it act for them return to, separated by commas: it is an OAuth client then',
      (text: string) => (text === '' ? [] : parseList(text)),
    )
    .option(
      '--client-metadata <uri>',
      'The address of the metadata with which it presents itself as an OAuth client',
    )
    .option(
      '--notification-endpoint <uri>',
      'Where it is told that a person has decided on its request for an approval (CIBA ping mode)',
    );

/** What the options say about an agent; null, for an empty one, removes a value. */
async function changeOf(
  administration: ProvisioningAdministration,
  { owner, purpose, expires, redirectUris, clientMetadata, notificationEndpoint }: DetailOptions,
): Promise<AgentChange> {
  return {
    ...(owner !== undefined && { owner: owner === '' ? null : await readOwner(administration, owner) }),
    ...(purpose !== undefined && { purpose: purpose || null }),
    ...(expires !== undefined && { expiresAt: expires === 'never' ? null : expires }),
    ...(redirectUris && { redirectUris: redirectUris.length > 0 ? redirectUris : null }),
    ...(clientMetadata !== undefined && { clientMetadata: clientMetadata || null }),
    ...(notificationEndpoint !== undefined && { notificationEndpoint: notificationEndpoint || null }),
  };
}

const readOwner = async (administration: ProvisioningAdministration, owner: string): Promise<string> =>
  owner.startsWith('group:') ? owner : (await findPrincipal(administration, owner)).id;

const readSubject = async (administration: ProvisioningAdministration, name: string): Promise<string> => {
  if (name === EVERY_AGENT || name.startsWith('group:')) {
    if (await administration.isSubject(name)) return name;
    return fail(1, `There is no ${name.replace(':', ' ')}.`);
  }
  const agent = await findPrincipal(administration, name);
  return agent.kind === 'agent' ? agent.id : refuseAgent(agent);
};

function definePermissions(group: CommandLine): void {
  group
    .command('allow')
    .summary('Let an agent get access tokens for an API')
    .description(ALLOW)
    .argument('<agent>', AGENT)
    .argument('<uri>', 'Identifier of the API')
    .option('--scopes <scopes>', 'Scopes, separated by commas; all of the API by default', parseList)
    .option('--until <time>', 'When the permission ends, like 2027-01-31', parseEnd)
    .option('--from <networks>', 'Networks from which tokens are requested, like 192.0.2.0/24', parseList)
    .option('--per-hour <number>', 'Access tokens for each agent in an hour', parseInteger(1, 99_999, 60))
    .option('--delegated-only', 'Only for people who let it act for them, never for itself')
    .examples(
      'idp agent allow scout@agents.example https://api.example.com --scopes files:read --until 2027-01-31',
      'idp agent allow group:research https://api.example.com --from 192.0.2.0/24 --per-hour 60',
    )
    .action((name: string, uri: string, options: AllowOptions) =>
      withProvisioning({ create: false }, async (administration) => {
        const subject = await readSubject(administration, name);
        const { scopes, until, from: networks, perHour: tokensPerHour, delegatedOnly } = options;
        const terms = { scopes, until, networks, tokensPerHour, delegatedOnly };
        const allowed = await administration.permissions.allow(subject, uri, terms, COMMAND_SOURCE);
        answer(options, { ...permissionView(allowed), agent: name });
      }),
    );
  group
    .command('disallow')
    .description('End a permission, and the tokens that were issued under it')
    .argument('<agent>', AGENT)
    .argument('<uri>')
    .examples('idp agent disallow scout@agents.example https://api.example.com')
    .action((name: string, uri: string, options: CommonOptions) =>
      withProvisioning({ create: false }, async (administration) => {
        const subject = await readSubject(administration, name);
        const resource = await administration.resources.find(uri);
        const isEnded =
          resource !== null && (await administration.permissions.withdraw(subject, resource, COMMAND_SOURCE));
        if (!isEnded) fail(1, `${name} has no permission for ${uri}.`);
        answer(options, { agent: name, resource: uri, withdrawn: true });
      }),
    );
  group
    .command('permissions')
    .description('List which agents may do what at which APIs')
    .argument('[agent]', AGENT)
    .examples('idp agent permissions', 'idp agent permissions scout@agents.example --json')
    .action((name: string | undefined, options: CommonOptions) =>
      printList<Record<string, unknown>>(options, {
        name: 'permissions',
        columns: ['agent', 'resource', 'scopes', 'until', 'delegated_only'],
        viewOf: (permission) => permission,
        async page(administration, after) {
          const subject = name === undefined ? undefined : await readSubject(administration, name);
          const { items, next } = await administration.permissions.list({ subject }, after);
          const named = items.map(async (permission) => ({
            ...permissionView(permission),
            agent: (await administration.directory.get(permission.subject))?.handle ?? permission.subject,
          }));
          return { items: await Promise.all(named), next };
        },
      }),
    );
}

async function mint(handle: string, options: MintOptions, command: CommandLine): Promise<void> {
  const identity = { handle, ...displayName(command, options) };
  const key = options.key === undefined ? undefined : readJson(command, options.key);
  await withProvisioning({ create: true }, async (administration) => {
    const { principals } = administration;
    const details = present<AgentDetails>(await changeOf(administration, options));
    const input = { ...details, ...identity };
    if (key !== undefined) {
      const agent = await principals.mintAgentWithKey({ ...input, key }, COMMAND_SOURCE);
      return answer(options, { ...principalView(agent), key: agent.keys?.[0]?.id });
    }
    const { agent, password } = await principals.mintAgent(input, COMMAND_SOURCE, true);
    answer(options, { ...principalView(agent), password }, SHOWN_ONCE);
  });
}
