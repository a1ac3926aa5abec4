import { toTimestamp, toTimestampOrNull } from '../../../core/http/schemas.js';
import { asInteger, asList, asObject, asText, asTime, type Json } from '../provider/json.js';
import type { ChangePreview } from './schemas.js';

/** What a change charges, as responses show it. */

/**
 * @param invoice that the change causes; null if it causes none
 * @param periodEnd the end of the present period; absent if no further one follows
 */
export function previewView(
  subscription: Json,
  invoice: Json | null,
  periodEnd: number | undefined,
): ChangePreview {
  const lines = asList(asObject(invoice?.['lines'])['data']);
  const ends = lines.flatMap((line) => asTime(asObject(line['period'])['end']) ?? []);
  return {
    amountDue: asInteger(invoice?.['amount_due']) ?? 0,
    total: asInteger(invoice?.['total']) ?? 0,
    currency: asText(invoice?.['currency']) ?? asText(subscription['currency']) ?? null,
    lines: lines.map(lineView),
    nextChargeAt: periodEnd === undefined ? null : toTimestamp(Math.max(periodEnd, ...ends)),
  };
}

function lineView(line: Json): ChangePreview['lines'][number] {
  const period = asObject(line['period']);
  return {
    description: asText(line['description']) ?? null,
    amount: asInteger(line['amount']) ?? 0,
    quantity: asInteger(line['quantity']) ?? null,
    periodStart: toTimestampOrNull(asTime(period['start'])),
    periodEnd: toTimestampOrNull(asTime(period['end'])),
  };
}
