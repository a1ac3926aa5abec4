import type { FastifyTypebox } from '../../core/http/routes.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { AuditView } from '../../core/ops/audit.js';
import { registerDetail } from '../../shared/console-kit/details.js';
import { type Column, tableOf } from '../../shared/console-kit/tables.js';
import type { Action, SignedReceipt } from '../oidc/receipts.js';
import { subjectPath } from './audit.js';
import type { ConsoleServices } from './sources.js';

/** In tables of audit records: the receipt of the authorization that a record is about. */
export const RECEIPT: Column<AuditView> = {
  label: 'Receipt',
  text: (record) => (txnIn(record) === null ? null : 'Receipt'),
  href: (record) => txnIn(record) && `receipts/${txnIn(record)}`,
};

const txnIn = ({ detail }: AuditView): string | null => /^\{"txn":"(gr_\w+)"/.exec(detail ?? '')?.[1] ?? null;

const principalColumn = (label: string, idOf: (action: Action) => string | undefined): Column<Action> => ({
  label,
  text: (action) => idOf(action) ?? null,
  href: (action) => subjectPath(idOf(action) ?? ''),
  kind: 'code',
});

/** The receipt of what agents did with one authorization. */
export async function receiptPlugin(
  fastify: FastifyTypebox,
  { console, sources: { receipts } }: ConsoleServices,
): Promise<void> {
  registerDetail<SignedReceipt>(fastify, console, {
    path: 'receipts/:txn',
    section: 'audit',
    async find({ txn = '' }) {
      const found = await receipts.of(txn);
      if (!found) throw httpErrors.NOT_FOUND();
      return found;
    },
    view: ({ txn, count, complete, actions, receipt }, root) => ({
      title: 'Receipt',
      facts: [
        { label: 'Authorization (txn)', text: txn, isCode: true },
        { label: 'Records', text: String(count) },
        { label: 'Complete', text: complete ? 'yes' : 'no: there are more than one receipt holds' },
      ],
      tables: [
        {
          heading: 'What happened',
          ...tableOf<Action>(
            [
              { label: 'Time', text: ({ at }) => at, kind: 'time' },
              { label: 'Event', text: ({ event }) => event },
              principalColumn('Agent', ({ agent }) => agent),
              principalColumn('Owner', ({ owner }) => owner),
              principalColumn('Person', ({ person }) => person),
              { label: 'API', text: ({ resource = null }) => resource, kind: 'code' },
              { label: 'Scopes', text: ({ scopes = [] }) => scopes.join(' ') },
              { label: 'Permissions', text: ({ permissions = [] }) => permissions.join(', ') },
              { label: 'Handed on by', text: ({ chain = [] }) => chain.join(', ') },
            ],
            actions,
            root,
          ),
        },
      ],
      texts: [
        { id: 'signed', heading: 'Signed, to be verified with the keys of the provider', text: receipt },
      ],
    }),
  });
}
