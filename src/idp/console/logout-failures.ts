import type { TObject } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { toTimestamp, toTimestampOrNull } from '../../core/http/schemas.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { actorOf } from '../../core/ops/audit.js';
import { registerAction } from '../../shared/console-kit/actions.js';
import { registerList } from '../../shared/console-kit/lists.js';
import type { LogoutFailure } from '../oidc/backchannel/service.js';
import type { ClientDocument } from '../provisioning/store.js';
import { type ConsoleServices, operatorSource } from './sources.js';

interface ListedFailure extends LogoutFailure {
  /** `null` if it was deleted. */
  client: ClientDocument | null;
}

/** The page of the list, which has no entry in the navigation. */
export const LOGOUT_FAILURES = 'logout-failures';

/** Applications that could not be notified that a session has ended. */
export async function logoutFailuresPlugin(
  fastify: FastifyTypebox,
  { console, sources }: ConsoleServices,
): Promise<void> {
  const { logoutFailures, clients, audit } = sources;
  const withClient = async (failure: LogoutFailure): Promise<ListedFailure> => ({
    ...failure,
    client: await clients.find(failure.clientId),
  });

  registerList<ListedFailure>(fastify, console, {
    path: LOGOUT_FAILURES,
    section: 'clients',
    title: 'Failed logout notices',
    intro:
      'Applications that could not be notified that a session has ended. Until then, people may stay signed in there. A notice is given up after eight attempts within nine hours, and listed for at least a week.',
    columns: [
      {
        label: 'Application',
        text: ({ client, clientId }) => client?.name || clientId,
        href: ({ client }) => client && `clients/${client.id}`,
      },
      { label: 'Address', text: ({ client }) => client?.backchannelLogoutUri ?? null },
      { label: 'Person', text: ({ sub }) => sub, href: ({ sub }) => `principals/${sub}`, kind: 'code' },
      { label: 'Failing since', text: ({ failingSince = 0 }) => toTimestamp(failingSince), kind: 'time' },
      { label: 'Attempts', text: ({ attempts }) => attempts, kind: 'number' },
      { label: 'Last error', text: ({ lastFailure }) => lastFailure ?? null },
      {
        label: 'Status',
        text: ({ dueAt }) => (dueAt === undefined ? 'given up' : 'retrying'),
        kind: 'status',
      },
      { label: 'Next attempt', text: ({ dueAt }) => toTimestampOrNull(dueAt), kind: 'time' },
      { label: 'Retry', text: () => 'Retry now', href: ({ id }) => `${LOGOUT_FAILURES}/${id}/retry` },
    ],
    async read({ after, limit }) {
      const { items, next } = await logoutFailures.list({ after, limit });
      return { items: await Promise.all(items.map(withClient)), next };
    },
    empty: 'Every application has been told so far.',
  });

  await registerAction<ListedFailure, TObject>(fastify, console, {
    path: `${LOGOUT_FAILURES}/:id/retry`,
    section: 'clients',
    title: ({ client, clientId }) => `Tell ${client?.name || clientId} now?`,
    consequences: 'The application is called once more, now instead of at the next attempt.',
    button: 'Retry now',
    async find({ id = '' }) {
      const failure = await logoutFailures.find(id);
      if (!failure) throw httpErrors.NOT_FOUND();
      return withClient(failure);
    },
    async run({ id, clientId, sub }, _, by) {
      const record = audit.entry({
        event: 'logout.retried',
        subject: sub,
        detail: clientId,
        ...actorOf(operatorSource(by)),
      });
      if (!(await logoutFailures.retry(id, record))) throw httpErrors.NOT_FOUND();
    },
    done: 'The application is called within a minute. An entry that is gone has succeeded.',
    returnTo: () => LOGOUT_FAILURES,
  });
}
