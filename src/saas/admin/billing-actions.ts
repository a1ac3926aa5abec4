import { Type } from 'typebox';
import { isOrganizationId } from '../../core/http/identity.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { decimalsOf, writeAmount } from '../../core/kernel/currencies.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { Operator } from '../../core/ops/audit.js';
import { actionsOn } from '../../shared/console-kit/actions.js';
import type { DetailAction } from '../../shared/console-kit/details.js';
import type { PaymentRecord, SubscriptionRecord } from '../billing/records.js';
import type { AdminServices } from './services.js';
import { DayInput, endOf, PROVIDER_TIMEOUT_MS } from './user-actions.js';

const LABELS: Record<SubscriptionRecord['actions'][number], string> = {
  'change-plan': 'Change the plan',
  'extend-trial': 'Extend the trial',
  coupon: 'Apply a coupon',
  cancel: 'Cancel at the end of the period',
  resume: 'Continue the subscription',
  'cancel-now': 'Cancel now',
};

/** The links of the page of an owner to the actions that apply to what it holds. */
export function subscriptionLinks(held: readonly SubscriptionRecord[], root: string): DetailAction[] {
  const changeable = held.filter(({ actions }) => actions.length > 0);
  return changeable.flatMap(({ id, plan, actions }) =>
    actions.map((action) => ({
      href: `${root}subscriptions/${id}/${action}`,
      label: changeable.length > 1 ? `${LABELS[action]}: ${plan}, ${id}` : LABELS[action],
      ...(action === 'cancel-now' ? { isDangerous: true } : { menu: 'Billing' }),
    })),
  );
}

/** What operators change at the payment provider: subscriptions and payments, each by its ID, of users and organizations. */
export async function billingActionsPlugin(
  fastify: FastifyTypebox,
  { console, billing, provider, clock }: AdminServices,
): Promise<void> {
  if (!provider) return;
  const { prices } = provider;
  const { changes, records, refunds } = billing;
  const register = actionsOn<SubscriptionRecord>(fastify, console, {
    path: 'subscriptions/:id',
    section: 'subscriptions',
    find: ({ id = '' }) => found(records.subscriptions({ id, after: undefined, limit: 1 })),
    returnTo: pageOf,
    timeoutMs: PROVIDER_TIMEOUT_MS,
  });
  const about = ({ id, email }: SubscriptionRecord) => `${email}, ${id}`;

  await register('change-plan', {
    title: (held) => `Change the plan of ${about(held)}`,
    consequences:
      'As if the customer had changed it: the difference for the rest of the period is charged or credited in the same way, and a payment that is due at once must succeed. The number of seats stays.',
    button: 'Change plan',
    fields: Type.Object({
      priceId: Type.String({ accepts: 'the ID of a price', pattern: '^[\\w.-]{1,255}$' }),
      when: Type.Optional(Type.Enum(['now', 'period_end'])),
    }),
    inputs: [
      // The provider may have a new price for the lookup key of a plan.
      {
        name: 'priceId',
        label: 'Price',
        isRequired: true,
        ...(prices && {
          options: () => [
            { value: '', label: 'Choose a price' },
            ...prices().map(([value, plan]) => ({ value, label: `${plan} (${value})` })),
          ],
        }),
      },
      {
        name: 'when',
        label: 'When',
        options: [
          { value: 'now', label: 'Now' },
          { value: 'period_end', label: 'At the end of the period' },
        ],
      },
    ],
    values: ({ priceId }) => ({ priceId: priceId ?? '' }),
    run: ({ ownerId, id }, order, by) =>
      changes.change(ownerId, { subscriptionId: id, ...order }, ...who(by)),
    done: 'The plan was changed.',
  });

  await register('extend-trial', {
    title: (held) => `Extend the trial of ${about(held)}`,
    consequences: 'Nothing is charged before the new end. The customer keeps access until then.',
    button: 'Extend trial',
    fields: Type.Object({ until: DayInput }),
    inputs: [{ name: 'until', label: 'Last day', type: 'date', hint: 'In UTC.', isRequired: true }],
    run: ({ ownerId, id }, { until }, by) =>
      changes.extendTrial(ownerId, { subscriptionId: id, until: endOf(until, clock.now()) }, ...who(by)),
    done: 'The trial ends later.',
  });

  await register('coupon', {
    title: (held) => `Apply a coupon to ${about(held)}`,
    consequences: 'The next invoices have its discount. A subscription has one discount at a time.',
    button: 'Apply coupon',
    fields: Type.Object({
      code: Type.String({
        accepts: 'the code of a promotion, or the ID of a coupon',
        pattern: '^[\\w-]{1,500}$',
      }),
    }),
    inputs: [
      {
        name: 'code',
        label: 'Code',
        hint: 'A promotion code as customers enter it, or the ID of a coupon.',
        isRequired: true,
        maxLength: 500,
      },
    ],
    run: ({ ownerId, id }, { code }, by) =>
      changes.applyPromotionCode(ownerId, { subscriptionId: id, code }, ...who(by)),
    done: 'The coupon was applied.',
  });

  const cancel = (when: 'period_end' | 'now') => (target: SubscriptionRecord, _: object, by: Operator) =>
    changes.cancel(target.ownerId, { subscriptionId: target.id, when }, ...who(by));

  await register('cancel', {
    title: (held) => `Cancel at the end of the period: ${about(held)}`,
    consequences: 'The customer keeps access until the paid period ends, and is not charged again.',
    button: 'Cancel at the end of the period',
    run: cancel('period_end'),
    done: 'The subscription ends with its period.',
  });

  await register('resume', {
    title: (held) => `Continue ${about(held)}`,
    consequences:
      'A cancellation at the end of the period is taken back, or a pause ends. It is charged again.',
    button: 'Continue subscription',
    run: ({ ownerId, id }, _, by) => changes.resume(ownerId, { subscriptionId: id }, ...who(by)),
    done: 'The subscription continues.',
  });

  await register('cancel-now', {
    title: (held) => `Cancel now: ${about(held)}`,
    consequences:
      'The customer loses access at once, and the subscription cannot be continued. What was paid is not refunded; refund the payment if it should be.',
    button: 'Cancel now',
    isDestructive: true,
    run: cancel('now'),
    done: 'The subscription has ended.',
  });

  const registerOnPayment = actionsOn<PaymentRecord>(fastify, console, {
    path: 'payments/:id',
    section: 'payments',
    find: ({ id = '' }) => found(records.payments({ id, after: undefined, limit: 1 })),
    returnTo: pageOf,
    timeoutMs: PROVIDER_TIMEOUT_MS,
  });
  await registerOnPayment('refund', {
    title: ({ id, email, amount, currency }) => `Refund ${writeAmount(amount, currency)} of ${email}, ${id}`,
    consequences:
      'The payment provider returns the money to the customer, which cannot be undone. A subscription continues; cancel it if it should end.',
    button: 'Refund',
    isDestructive: true,
    fields: Type.Object({
      amount: Type.Optional(Type.Integer({ minimum: 1, maximum: 99_999_999_999 })),
      refundedAmount: Type.Integer({ minimum: 0, maximum: 99_999_999_999 }),
      reason: Type.Optional(Type.Enum(['requested_by_customer', 'duplicate', 'fraudulent'])),
    }),
    inputs: [
      { name: 'refundedAmount', label: 'Refunded before', type: 'hidden' },
      { name: 'amount', label: 'Amount', hint: 'In the currency of the payment, like 12.50.', maxLength: 15 },
      {
        name: 'reason',
        label: 'Reason',
        options: [
          { value: 'requested_by_customer', label: 'The customer asked for it' },
          { value: 'duplicate', label: 'Paid twice' },
          { value: 'fraudulent', label: 'Fraud' },
        ],
      },
    ],
    values: ({ refundedAmount, refundableAmount, currency }) => ({
      refundedAmount: String(refundedAmount),
      amount: writeAmount(refundableAmount, currency)?.split(' ')[0] ?? '',
    }),
    fromForm: ({ amount, refundedAmount, ...rest }, { currency }) => ({
      ...rest,
      ...(amount !== undefined && { amount: amountIn(amount, currency ?? '') }),
      refundedAmount: Number(refundedAmount),
    }),
    run: ({ id }, order, by) => refunds.refund(id, order, by),
    done: 'The refund is made. The payment shows it once the payment provider has reported it.',
  });
}

/** What is typed, like 12.50, in the smallest unit of a currency; `NaN` for anything else. */
function amountIn(typed: string, currency: string): number {
  const digits = decimalsOf(currency);
  const [, whole, part = ''] = /^(\d{1,9})(?:[.,](\d+))?$/.exec(typed.trim()) ?? [];
  return part.length > digits ? Number.NaN : Number(`${whole}${part.padEnd(digits, '0')}`);
}

const who = ({ name, ip }: Operator): [string, undefined, string] => [ip, undefined, name];

/** The record of an owner of this product. */
async function found<T extends { email: string | null }>(page: Promise<{ items: readonly T[] }>): Promise<T> {
  const [record] = (await page).items;
  if (record === undefined || record.email === null) throw httpErrors.NOT_FOUND();
  return record;
}

const pageOf = ({ ownerId }: { ownerId: string }): string =>
  `${isOrganizationId(ownerId) ? 'organizations' : 'users'}/${ownerId}`;
