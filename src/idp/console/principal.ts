import { Type } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { toAuditView } from '../../core/ops/audit.js';
import { Done, Parameters, rootOf } from '../../shared/console-kit/console.js';
import { type DetailRow, detailRows } from '../../shared/console-kit/details.js';
import { tableOf } from '../../shared/console-kit/lists.js';
import type { Connection } from '../oidc/consents.js';
import type { ActiveDelegation } from '../oidc/delegations/service.js';
import type { SessionDocument } from '../oidc/store.js';
import type { ClientDocument, PrincipalDocument } from '../provisioning/store.js';
import { AUDIT_COLUMNS } from './audit.js';
import { kindOf } from './principals.js';
import type { ConsoleServices } from './sources.js';

const LISTED_RECORDS = 10;

interface Link {
  path: string;
  label: string;
}

/** What an operator can do with a principal in its state. */
function actionsOf({ kind, state }: PrincipalDocument): Link[] {
  if (state === 'deleted') return [];
  const links: Link[] = [];
  if (state === 'active' && kind === 'human') links.push({ path: 'reset', label: 'Create a reset link' });
  if (state === 'active' && kind === 'agent') links.push({ path: 'rotate', label: 'Rotate the password' });
  if (state === 'disabled') links.push({ path: 'enable', label: 'Enable' });
  else links.push({ path: 'disable', label: 'Disable' });
  return [...links, { path: 'delete', label: 'Delete' }];
}

function principalFacts(principal: PrincipalDocument): DetailRow[] {
  const { id, handle, name, state, operatorSince, createdAt, updatedAt, keys = [] } = principal;
  return [
    { label: 'User name', text: handle },
    { label: 'Name', text: name ?? '–' },
    { label: 'Kind', text: kindOf(principal) },
    ...keys.map(({ id, jwk }) => ({ label: `Public key (${jwk.crv})`, text: id, isCode: true })),
    { label: 'State', text: state },
    ...(operatorSince === undefined ? [] : [{ label: 'Operator since', time: toTimestamp(operatorSince) }]),
    { label: 'Created', time: toTimestamp(createdAt) },
    { label: 'Changed', time: toTimestamp(updatedAt) },
    { label: 'ID', text: id, isCode: true },
  ];
}

function delegationTable(
  delegations: ActiveDelegation[],
  { isAgent, page, root }: { isAgent: boolean; page: string; root: string },
) {
  const heading = isAgent ? 'Acts for people' : 'Agents that act for this person';
  return {
    id: 'delegations',
    heading,
    tableLabel: heading,
    empty: 'None.',
    ...tableOf<ActiveDelegation>(
      [
        {
          label: isAgent ? 'Person' : 'Agent',
          text: ({ agent, person }) => (isAgent ? person : agent).handle,
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
  id: 'sessions',
  heading: 'Sessions',
  tableLabel: 'Sessions',
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
  id: 'applications',
  heading: 'Connected applications',
  tableLabel: 'Connected applications',
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
  const schema = { params: Parameters, querystring: Type.Object({ done: Done }) };
  fastify.get('/principals/:sub', { config: console.config, schema }, async (request, reply) => {
    const { sub = '' } = request.params;
    const principal = await sources.principals.get(sub);
    if (!principal) throw httpErrors.NOT_FOUND();
    const root = rootOf(request);
    const isAgent = principal.kind === 'agent';
    const [sessions, consents, delegations, records] = await Promise.all([
      sources.sessions.list(principal),
      sources.consents.list(sub),
      sources.delegations.list(isAgent ? { agent: sub } : { person: sub }),
      sources.audit.search({ subjects: [sub], limit: LISTED_RECORDS }),
    ]);
    const applications = await Promise.all(
      consents.map(async (consent) => ({ ...consent, client: await sources.clients.find(consent.clientId) })),
    );
    const page = `principals/${sub}`;
    const tables = [
      sessionTable(sessions, page, root),
      applicationTable(applications, root),
      ...(delegations.length > 0 ? [delegationTable(delegations, { isAgent, page, root })] : []),
      {
        id: 'audit',
        heading: 'Latest audit records',
        tableLabel: 'Latest audit records',
        empty: 'No recent record.',
        ...tableOf(AUDIT_COLUMNS, records.items.map(toAuditView), root),
      },
    ];
    return console.send(request, reply, {
      template: 'console-detail',
      section: 'principals',
      view: {
        title: principal.handle,
        facts: detailRows(principalFacts(principal)),
        actions: actionsOf(principal).map(({ path, label }) => ({ href: `${sub}/${path}`, label })),
        tables,
      },
    });
  });
}
