import { InvalidArgumentError } from 'commander';
import { parseList } from '../../src/core/config/options.js';
import { toTimestamp } from '../../src/core/http/schemas.js';
import { keyTypeOf } from '../../src/core/kernel/public-jwk.js';
import type { ProvisioningAdministration } from '../../src/idp/administration.js';
import { permissionView } from '../../src/idp/permissions/schemas.js';
import { EVERY_AGENT } from '../../src/idp/permissions/store.js';
import { MAX_AGENT_KEYS } from '../../src/idp/provisioning/agent-keys.js';
import { MAX_WORKLOAD_RULES } from '../../src/idp/provisioning/agent-workloads.js';
import { operatorView, principalView } from '../../src/idp/provisioning/schemas.js';
import {
  type AgentKey,
  type PrincipalDocument,
  textOfRule,
  type WorkloadRule,
} from '../../src/idp/provisioning/store.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { displayName, parseEnd, parseInteger, readJson } from '../options.js';
import {
  COMMAND_SOURCE,
  findPrincipal,
  listPrincipals,
  printList,
  withPrincipal,
  withProvisioning,
} from '../provisioning.js';
import { answer, answerList, fail } from '../terminal.js';

interface DetailOptions extends CommonOptions {
  owner?: string;
  purpose?: string;
  expires?: number | 'never';
  redirectUris?: string[];
  clientMetadata?: string;
  notificationEndpoint?: string;
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
        const { owner, purpose, expires, redirectUris, clientMetadata, notificationEndpoint } = options;
        const change = {
          ...(owner !== undefined && { owner: owner === '' ? null : await readOwner(administration, owner) }),
          ...(purpose !== undefined && { purpose: purpose || null }),
          ...(expires !== undefined && { expiresAt: expires === 'never' ? null : expires }),
          ...(redirectUris && { redirectUris: redirectUris.length > 0 ? redirectUris : null }),
          ...(clientMetadata !== undefined && { clientMetadata: clientMetadata || null }),
          ...(notificationEndpoint !== undefined && { notificationEndpoint: notificationEndpoint || null }),
        };
        const changed = await administration.agents.change(agent.id, change, COMMAND_SOURCE);
        answer(options, operatorView(changed ?? refuse(agent)));
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
        if (password === null) refuse(agent);
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

const readOwner = async (administration: ProvisioningAdministration, owner: string): Promise<string> =>
  owner.startsWith('group:') ? owner : (await findPrincipal(administration, owner)).id;

const readSubject = async (administration: ProvisioningAdministration, name: string): Promise<string> => {
  if (name === EVERY_AGENT || name.startsWith('group:')) {
    if (await administration.isSubject(name)) return name;
    return fail(1, `There is no ${name.replace(':', ' ')}.`);
  }
  const agent = await findPrincipal(administration, name);
  return agent.kind === 'agent' ? agent.id : refuse(agent);
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

function defineKeys(group: CommandLine): void {
  group
    .description(`Manage the public keys of an agent, at most ${MAX_AGENT_KEYS}: add, list, remove`)
    .examples(
      'idp agent key add scout@agents.example jwk.json',
      'idp agent key list scout@agents.example',
      'idp agent key remove scout@agents.example kPrK_qmx…',
    );
  group
    .command('add')
    .description('Add a public key on Ed25519 or P-256, or of RSA')
    .argument('<handle>')
    .argument('<file>', 'File with the key as a JWK')
    .examples('idp agent key add scout@agents.example jwk.json')
    .action((handle: string, file: string, options: CommonOptions, command: CommandLine) => {
      const jwk = readJson(command, file);
      return withPrincipal(handle, async (agent, { agentKeys }) => {
        const key = await agentKeys.add(agent, jwk, COMMAND_SOURCE);
        if (key === null) refuse(agent);
        answer(options, { sub: agent.id, ...viewOf(key) });
      });
    });
  group
    .command('list')
    .description('List the keys of an agent')
    .argument('<handle>')
    .examples('idp agent key list scout@agents.example --json')
    .action((handle: string, options: CommonOptions) =>
      withPrincipal(handle, async ({ keys = [] }) => {
        answerList(options, 'keys', keys.map(viewOf), ['id', 'curve', 'added_at']);
      }),
    );
  group
    .command('remove')
    .description('Remove a key; all tokens of the agent end at once')
    .argument('<handle>')
    .argument('<thumbprint>', 'The id of the key in the list')
    .examples('idp agent key remove scout@agents.example kPrK_qmx…')
    .action((handle: string, id: string, options: CommonOptions) =>
      withPrincipal(handle, async (agent, { agentKeys }) => {
        const key = await agentKeys.remove(agent, id, COMMAND_SOURCE);
        if (key === null) fail(1, `${agent.handle} has no key ${id}.`);
        answer(options, { sub: agent.id, ...viewOf(key) });
      }),
    );
}

interface TrustOptions extends CommonOptions {
  issuer: string;
  subject: string;
  audience?: string;
  claim?: Record<string, string>;
  jwks?: string;
}

const TRUST = `Accept tokens of another issuer as a proof of the agent: of GitHub Actions, GitLab, Kubernetes, SPIFFE or a cloud. The workload that has such a token needs no secret. In --subject, * stands for any text; two whole parts come before it.`;

function defineTrust(group: CommandLine): void {
  group
    .description(
      `Manage which workloads are an agent, by at most ${MAX_WORKLOAD_RULES} rules: add, list, remove`,
    )
    .examples(
      'idp agent trust list scout@agents.example',
      'idp agent trust remove scout@agents.example wlr_0190…',
    );
  group
    .command('add')
    .summary('Accept tokens of another issuer as a proof of the agent')
    .description(TRUST)
    .argument('<handle>')
    .requiredOption('--issuer <url>', 'Issuer of the tokens, exactly as in their claim iss')
    .requiredOption('--subject <pattern>', 'Their claim sub, like repo:acme/app:ref:refs/heads/main')
    .option('--audience <text>', 'A value of their claim aud; the issuer of this provider by default')
    .option('--claim <name=value>', 'Another claim that they must have; may be repeated', parseClaim)
    .option('--jwks <file>', 'File with the keys of an issuer that cannot be reached, as a JWK Set')
    .examples(
      `idp agent trust add scout@agents.example --issuer https://token.actions.githubusercontent.com \\
      --subject repo:acme/app:ref:refs/heads/main`,
    )
    .action((handle: string, options: TrustOptions, command: CommandLine) => {
      const { issuer, subject, audience, claim: claims, jwks: file } = options;
      const jwks = file === undefined ? undefined : readJson(command, file);
      return withPrincipal(handle, async (agent, { agentWorkloads }) => {
        const input = { issuer, subject, audience, claims, jwks };
        const rule = await agentWorkloads.add(agent, input, COMMAND_SOURCE);
        answer(options, { sub: agent.id, ...ruleView(rule ?? refuse(agent), options) });
      });
    });
  group
    .command('list')
    .description('List the rules of an agent')
    .argument('<handle>')
    .examples('idp agent trust list scout@agents.example --json')
    .action((handle: string, options: CommonOptions) =>
      withPrincipal(handle, async ({ workloads = [] }) => {
        answerList(
          options,
          'rules',
          workloads.map((rule) => ruleView(rule, options)),
          ['rule'],
        );
      }),
    );
  group
    .command('remove')
    .description('Remove a rule; all tokens of the agent end at once')
    .argument('<handle>')
    .argument('<id>', 'The id of the rule in the list')
    .examples('idp agent trust remove scout@agents.example wlr_0190…')
    .action((handle: string, id: string, options: CommonOptions) =>
      withPrincipal(handle, async (agent, { agentWorkloads }) => {
        const rule = await agentWorkloads.remove(agent, id, COMMAND_SOURCE);
        if (rule === null) fail(1, `${agent.handle} has no rule ${id}.`);
        answer(options, { sub: agent.id, ...ruleView(rule, options) });
      }),
    );
}

function parseClaim(text: string, before: Record<string, string> = {}): Record<string, string> {
  const [, name = '', value = ''] = /^([^=]+)=(.+)$/s.exec(text) ?? [];
  if (name === '') throw new InvalidArgumentError('Use name=value, like repository_id=1296269.');
  return { ...before, [name]: value };
}

const ruleView = (rule: WorkloadRule, { json }: CommonOptions) => {
  const { jwks = [], addedAt, audience = null, claims = {}, ...fields } = rule;
  return json
    ? { ...fields, audience, claims, stored_keys: jwks.length, added_at: toTimestamp(addedAt) }
    : { rule: textOfRule(rule) };
};

async function mint(handle: string, options: MintOptions, command: CommandLine): Promise<void> {
  const { purpose, expires, redirectUris: uris = [], clientMetadata = '' } = options;
  const expiresAt = expires === 'never' ? undefined : expires;
  const asClient = {
    redirectUris: uris.length > 0 ? uris : undefined,
    clientMetadata: clientMetadata || undefined,
    notificationEndpoint: options.notificationEndpoint || undefined,
  };
  const details = { handle, ...displayName(command, options), purpose, expiresAt, ...asClient };
  const key = options.key === undefined ? undefined : readJson(command, options.key);
  await withProvisioning({ create: true }, async (administration) => {
    const { principals } = administration;
    const owner = options.owner && (await readOwner(administration, options.owner));
    const identity = { ...details, owner };
    if (key !== undefined) {
      const agent = await principals.mintAgentWithKey({ ...identity, key }, COMMAND_SOURCE);
      return answer(options, { ...principalView(agent), key: agent.keys?.[0]?.id });
    }
    const { agent, password } = await principals.mintAgent(identity, COMMAND_SOURCE, true);
    answer(options, { ...principalView(agent), password }, SHOWN_ONCE);
  });
}

const viewOf = ({ id, jwk, addedAt }: AgentKey) => ({
  id,
  curve: keyTypeOf(jwk),
  added_at: new Date(addedAt).toISOString(),
});

function refuse({ handle, kind, state }: PrincipalDocument): never {
  return fail(1, `${handle} is not an active agent: its kind is ${kind}, its state ${state}.`);
}
