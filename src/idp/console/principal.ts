import { addressOf } from '../../core/http/mailboxes.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { toTimestamp, toTimestampOrNull } from '../../core/http/schemas.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { keyTypeOf } from '../../core/kernel/public-jwk.js';
import { toAuditView } from '../../core/ops/audit.js';
import { withNames } from '../../shared/console-kit/audit.js';
import {
  DANGEROUS,
  type DetailAction,
  type DetailRow,
  linksBelow,
  registerDetail,
} from '../../shared/console-kit/details.js';
import { tableOf } from '../../shared/console-kit/tables.js';
import { entryOf } from '../../shared/console-kit/timeline.js';
import type { Connection } from '../oidc/consents.js';
import type { ActiveDelegation } from '../oidc/delegations/service.js';
import type { SessionDocument } from '../oidc/store.js';
import type { ClientDocument, PrincipalDocument } from '../provisioning/store.js';
import { AUDIT_COLUMNS, createNameOf, LISTED_RECORDS } from './audit.js';
import { permissionTable, useTable } from './permissions.js';
import { kindOf, nameOf } from './principals.js';
import { RECEIPT } from './receipts.js';
import type { ConsoleServices } from './sources.js';

/** What an operator can do with a principal in its state. */
function actionsOf({ id, kind, state }: PrincipalDocument): DetailAction[] {
  if (state === 'deleted') return [];
  const isAgent = kind === 'agent';
  return linksBelow(id, [
    ['reset', 'Create a reset link', state === 'active' && !isAgent],
    ['rotate', 'Rotate the password', state === 'active' && isAgent],
    ['enable', 'Enable', state === 'disabled'],
    ['disable', isAgent ? 'Stop it' : 'Disable', state !== 'disabled', DANGEROUS],
    ['email', 'Change the e-mail address', !isAgent],
    ['allow', 'Let it use an API', isAgent],
    ['details', 'Change the owner', isAgent],
    ['metadata', 'Change metadata', true],
    ['delete', 'Delete', true, DANGEROUS],
  ]);
}

/** Whether a principal may sign in, and for how long. */
const answerOf = ({ kind, state, expiresAt, lastUsedAt }: PrincipalDocument) => ({
  state,
  headline: {
    active: 'May sign in',
    invited: 'Has not accepted the invitation',
    disabled: 'May not sign in',
    deleted: 'Is deleted',
  }[state],
  detail:
    kind === 'human'
      ? 'A person'
      : `An agent, last used ${lastUsedAt === undefined ? 'never' : toTimestamp(lastUsedAt).slice(0, 10)}, ends ${expiresAt === undefined ? 'never' : toTimestamp(expiresAt).slice(0, 10)}`,
});

type Shown = PrincipalDocument & { groups: readonly string[]; ownerName?: string; rules: readonly string[] };

function principalFacts(principal: Shown): DetailRow[] {
  const { id, groups, keys = [], rules, redirectUris = [] } = principal;
  const address = addressOf(principal);
  return [
    { label: 'User name', text: principal.handle },
    { label: 'E-mail address', text: address === principal.handle ? null : (address ?? null) },
    { label: 'Address confirmed', time: toTimestampOrNull(principal.emailVerifiedAt) },
    { label: 'Name', text: principal.name ?? null },
    { label: 'Kind', text: kindOf(principal) },
    ...keys.map(({ id, jwk }) => ({ label: `Public key (${keyTypeOf(jwk)})`, text: id, isCode: true })),
    ...rules.map((text) => ({ label: 'Workload', text, isCode: true })),
    ...(principal.kind === 'agent'
      ? [
          { label: 'Owner', text: principal.ownerName ?? 'the operators' },
          { label: 'Purpose', text: principal.purpose ?? null },
          ...redirectUris.map((text) => ({ label: 'Redirect URI', text, isCode: true })),
          { label: 'Client metadata', text: principal.clientMetadata ?? null, isCode: true },
          { label: 'Notification endpoint', text: principal.notificationEndpoint ?? null, isCode: true },
          {
            label: 'Created by',
            text: principal.mintedAt === undefined ? 'itself' : (principal.mintedBy ?? '–'),
          },
          { label: 'Ends', time: toTimestampOrNull(principal.expiresAt) },
          { label: 'Last used', time: toTimestampOrNull(principal.lastUsedAt) },
        ]
      : []),
    { label: 'Groups', text: groups.join(', ') || null },
    ...Object.entries(principal.metadata ?? {}).map(([label, value]) => ({ label, text: String(value) })),
    { label: 'Operator since', time: toTimestampOrNull(principal.operatorSince) },
    { label: 'Created', time: toTimestamp(principal.createdAt) },
    { label: 'Changed', time: toTimestamp(principal.updatedAt) },
    { label: 'ID', text: id, isCode: true },
  ];
}

function delegationTable(
  delegations: ActiveDelegation[],
  { isAgent, page, root }: { isAgent: boolean; page: string; root: string },
) {
  const heading = isAgent ? 'Acts for people' : 'Agents that act for this person';
  return {
    heading,
    empty: 'None.',
    ...tableOf<ActiveDelegation>(
      [
        {
          label: isAgent ? 'Person' : 'Agent',
          text: ({ agent, person }) => nameOf(isAgent ? person : agent),
          href: ({ agent, person }) => `principals/${(isAgent ? person : agent).id}`,
        },
        { label: 'API', text: ({ delegation }) => delegation.resource, kind: 'code' },
        { label: 'Scopes', text: ({ delegation }) => delegation.scopes.join(' ') },
        { label: 'Agents in a row', text: ({ delegation }) => delegation.maxDepth, kind: 'number' },
        {
          label: 'Last used',
          text: ({ delegation }) =>
            delegation.lastUsedAt === undefined ? '–' : toTimestamp(delegation.lastUsedAt),
        },
        { label: 'Expires', text: ({ delegation }) => toTimestamp(delegation.expiresAt), kind: 'time' },
        { label: 'Receipt', text: () => 'Receipt', href: ({ delegation: { txn } }) => `receipts/${txn}` },
        {
          label: 'End',
          text: () => 'End',
          href: ({ delegation }) => `${page}/delegations/${delegation.id}/end`,
        },
      ],
      delegations,
      root,
    ),
  };
}

const sessionTable = (sessions: SessionDocument[], page: string, root: string) => ({
  heading: 'Sessions',
  empty: 'Not signed in.',
  ...tableOf<SessionDocument>(
    [
      { label: 'Signed in', text: ({ authTime }) => toTimestamp(authTime), kind: 'time' },
      { label: 'Expires', text: ({ expiresAt }) => toTimestamp(expiresAt), kind: 'time' },
      { label: 'ID', text: ({ id }) => id, kind: 'code' },
      { label: 'End', text: () => 'End', href: ({ id }) => `${page}/sessions/${id}/end` },
    ],
    sessions,
    root,
  ),
});

const applicationTable = (
  applications: (Connection & { client: ClientDocument | null })[],
  root: string,
) => ({
  heading: 'Applications',
  empty: 'No application was allowed by this principal.',
  note: 'Agents and applications that are trusted need no consent and are not listed.',
  ...tableOf<(typeof applications)[number]>(
    [
      {
        label: 'Application',
        text: ({ client, clientId }) => client?.name || clientId,
        href: ({ client, clientId }) => (client ? `clients/${clientId}` : null),
      },
      {
        label: 'Scopes',
        text: ({ scopes, resources }) =>
          [...scopes, ...resources.map((one) => `${one.resource} ${one.scopes.join(' ')}`)].join(' '),
      },
      { label: 'Allowed', text: ({ updatedAt }) => toTimestamp(updatedAt), kind: 'time' },
    ],
    applications,
    root,
  ),
});

/** The page of a principal: its data, sessions, applications and latest audit records. */
export async function principalPagePlugin(
  fastify: FastifyTypebox,
  { console, sources }: ConsoleServices,
): Promise<void> {
  registerDetail<Shown>(fastify, console, {
    path: 'principals/:sub',
    section: 'principals',
    async find({ sub = '' }) {
      const principal = await sources.groups.withGroups(await sources.principals.get(sub));
      if (!principal) throw httpErrors.NOT_FOUND();
      const { owner = '' } = principal;
      const ownerName = (await sources.principals.get(owner))?.handle ?? owner.replace(':', ' ');
      const rules = sources.agents.rulesOf(principal);
      return { ...principal, rules, ...(ownerName && { ownerName }) };
    },
    async view(principal, root) {
      const { id, kind } = principal;
      const isAgent = kind === 'agent';
      const [sessions, consents, delegations, records, permissions, uses] = await Promise.all([
        sources.sessions.list(principal),
        sources.consents.list(id),
        sources.delegations.list(isAgent ? { agent: id } : { person: id }),
        sources.audit.search({ about: id, limit: LISTED_RECORDS }),
        isAgent ? sources.permissions.of(principal) : [],
        isAgent ? sources.agents.usesOf(id) : [],
      ]);
      const applications = await Promise.all(
        consents.map(async (consent) => ({
          ...consent,
          client: await sources.clients.find(consent.clientId),
        })),
      );
      const page = `principals/${id}`;
      const named = await withNames(records.items.map(toAuditView), createNameOf(sources));
      return {
        title: nameOf(principal),
        subtitle: [kindOf(principal), principal.name].filter(Boolean).join(' · '),
        isPerson: true,
        initials: principal.name,
        answer: answerOf(principal),
        timeline: named.map(entryOf),
        facts: principalFacts(principal),
        actions: actionsOf(principal),
        tables: [
          ...(isAgent ? [permissionTable(permissions, page, root), useTable(uses, root)] : []),
          sessionTable(sessions, page, root),
          applicationTable(applications, root),
          ...(delegations.length > 0 ? [delegationTable(delegations, { isAgent, page, root })] : []),
          {
            heading: 'Audit',
            empty: 'No recent record.',
            ...tableOf([...AUDIT_COLUMNS, RECEIPT], named, root),
          },
        ],
      };
    },
  });
}
