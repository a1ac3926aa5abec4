import type { FastifyTypebox } from '../../core/http/routes.js';
import { readTime, toTimestamp } from '../../core/http/schemas.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { actionsOn, registerAction } from '../../shared/console-kit/actions.js';
import { tableOf } from '../../shared/console-kit/tables.js';
import type { PermissionDocument } from '../permissions/store.js';
import type { AgentUseDocument } from '../provisioning/agent-uses.js';
import type { PrincipalDocument } from '../provisioning/store.js';
import { nameOf } from './principals.js';
import { type ConsoleServices, operatorSource, requireCurrent, type TextForm, wordsIn } from './sources.js';

/** What an agent may do at which APIs, and who answers for it: the parts of its page. */

export const permissionTable = (permissions: readonly PermissionDocument[], page: string, root: string) => ({
  heading: 'May use APIs',
  empty: 'No API: it gets no access token.',
  ...tableOf<PermissionDocument>(
    [
      { label: 'API', text: ({ resource }) => resource, kind: 'code' },
      { label: 'Scopes', text: ({ scopes }) => scopes.join(' ') },
      { label: 'To', text: ({ subject }) => nameOfSubject(subject) },
      { label: 'Given by', text: ({ givenBy }) => givenBy ?? '–' },
      { label: 'Given', text: ({ updatedAt }) => toTimestamp(updatedAt), kind: 'time' },
      { label: 'Conditions', text: (permission) => conditionsOf(permission).join(', ') || '–' },
      {
        label: 'End',
        text: ({ subject }) => (subject.startsWith('u_') ? 'End' : null),
        href: ({ subject, resourceId }) =>
          subject.startsWith('u_') ? `${page}/permissions/${resourceId}/end` : null,
      },
    ],
    permissions,
    root,
  ),
});

export const useTable = (uses: readonly AgentUseDocument[], root: string) => ({
  heading: 'Where it acted',
  empty: 'Nowhere yet.',
  note: 'To the minute. The receipt names what happened under the latest authorization.',
  ...tableOf<AgentUseDocument>(
    [
      { label: 'API', text: ({ resource }) => resource, kind: 'code' },
      { label: 'First', text: ({ firstUsedAt }) => toTimestamp(firstUsedAt), kind: 'time' },
      { label: 'Last', text: ({ lastUsedAt }) => toTimestamp(lastUsedAt), kind: 'time' },
      { label: 'Minutes with a use', text: ({ minutes }) => minutes, kind: 'number' },
      { label: 'Receipt', text: () => 'Receipt', href: ({ txn }) => `receipts/${txn}` },
    ],
    uses,
    root,
  ),
});

function nameOfSubject(subject: string): string {
  if (subject.startsWith('u_')) return 'itself';
  return subject === '*' ? 'every agent' : subject.replace(':', ' ');
}

const conditionsOf = ({ until, networks, tokensPerHour, delegatedOnly }: PermissionDocument): string[] => [
  ...(until === undefined ? [] : [`until ${toTimestamp(until)}`]),
  ...(networks ? [`from ${networks.join(' ')}`] : []),
  ...(tokensPerHour === undefined ? [] : [`${tokensPerHour} tokens an hour`]),
  ...(delegatedOnly ? ['only for people who let it'] : []),
];

export async function permissionActionsPlugin(
  fastify: FastifyTypebox,
  { console, sources }: ConsoleServices,
): Promise<void> {
  const section = 'principals';
  const { principals, permissions, resources, agents } = sources;
  const find = async (parameters: Record<string, string>): Promise<PrincipalDocument> => {
    const agent = await principals.require(parameters);
    if (agent.kind !== 'agent' || agent.state === 'deleted') throw httpErrors.NOT_FOUND();
    return agent;
  };
  const returnTo = ({ id }: { id: string }) => `principals/${id}`;
  const common = { path: 'principals/:sub', section, find, returnTo };
  const register = actionsOn<PrincipalDocument>(fastify, console, common);

  await register<TextForm>('allow', {
    title: (agent) => `Let ${nameOf(agent)} use an API`,
    consequences:
      'The agent gets access tokens for the API until you end the permission. It replaces an earlier one for the same API.',
    button: 'Allow',
    inputs: [
      { name: 'resource', label: 'API', hint: 'Its identifier.', isRequired: true, maxLength: 512 },
      {
        name: 'scopes',
        label: 'Scopes',
        hint: 'Separated by spaces. Empty: all of the API.',
        maxLength: 2000,
      },
      { name: 'until', label: 'Until', hint: 'The last day, in UTC. Optional.', type: 'date' },
      {
        name: 'networks',
        label: 'Networks',
        hint: 'From where it requests tokens, like 192.0.2.0/24. Optional.',
        maxLength: 1000,
      },
      { name: 'tokens_per_hour', label: 'Tokens in an hour', hint: 'Optional.', type: 'number' },
      {
        name: 'delegated_only',
        label: 'Only for people who let it act for them',
        options: [
          { value: '', label: 'no' },
          { value: 'yes', label: 'yes' },
        ],
      },
    ],
    run: ({ id }, fields, by) => {
      const { resource = '', scopes, until, networks, tokens_per_hour: perHour } = fields;
      const terms = {
        scopes: wordsIn(scopes),
        networks: wordsIn(networks),
        until: until === undefined ? undefined : readDay('until', until),
        tokensPerHour: perHour === undefined ? undefined : Number(perHour),
        delegatedOnly: fields['delegated_only'] === 'yes',
      };
      return permissions.allow(id, resource, terms, operatorSource(by));
    },
    done: 'Allowed.',
  });

  await registerAction<{ id: string; resource: { id: string; identifier: string } }, TextForm>(
    fastify,
    console,
    {
      path: 'principals/:sub/permissions/:resource/end',
      section,
      title: ({ resource }) => `End the permission for ${resource.identifier}?`,
      consequences: 'The agent gets no further access token for the API, and those that it has end.',
      button: 'End the permission',
      find: async ({ sub = '', resource = '' }) => {
        const found = await resources.findServer(resource);
        if (!found) throw httpErrors.NOT_FOUND();
        return { id: (await find({ sub })).id, resource: found };
      },
      run: async ({ id, resource }, _, by) =>
        requireCurrent(await permissions.withdraw(id, resource, operatorSource(by))),
      done: 'The permission has ended.',
      returnTo,
    },
  );

  /** The `sub` of a person, or `group:` with a name. */
  const readOwner = async (text: string): Promise<string> =>
    text.startsWith('group:') ? text : ((await principals.findByName(text))?.id ?? text);

  await register<TextForm>('details', {
    title: (agent) => `Who answers for ${nameOf(agent)}`,
    consequences: 'The agent stops when its owner leaves, and at its end.',
    button: 'Save',
    inputs: [
      {
        name: 'owner',
        label: 'Owner',
        hint: 'The user name of a person, or group: and a name. Empty: the operators.',
        maxLength: 254,
      },
      { name: 'purpose', label: 'Purpose', hint: 'Optional.', maxLength: 200 },
      { name: 'expires', label: 'Ends', hint: 'The last day, in UTC. Empty: never.', type: 'date' },
    ],
    values: ({ owner = '', purpose = '', expiresAt }) => ({
      owner,
      purpose,
      expires: expiresAt === undefined ? '' : toTimestamp(expiresAt).slice(0, 10),
    }),
    run: async ({ id }, { owner, purpose, expires }, by) => {
      const change = {
        owner: owner === undefined ? null : await readOwner(owner),
        purpose: purpose ?? null,
        expiresAt: expires === undefined ? null : readDay('expires', expires),
      };
      return requireCurrent(await agents.change(id, change, operatorSource(by)));
    },
    done: 'Saved.',
  });
}

/** The last moment of a day in UTC. @throws VALIDATION_ERROR */
function readDay(path: string, text: string): number {
  const end = readTime(`${text}T23:59:59.999Z`);
  if (!Number.isNaN(end)) return end;
  throw invalidFields({ path, message: 'must be a day like 2027-01-31' });
}
