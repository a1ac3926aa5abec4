import { toTimestamp } from '../core/http/schemas.js';
import { createAttentionJob } from '../shared/console-kit/attention.js';
import { createAttentionMails } from '../shared/email/attention.js';
import type { AdminModule } from './admin/module.js';
import type { SaasBase } from './base.js';
import type { SaasModules } from './modules.js';

/** What needs attention becomes an event and a mail, if there is an admin area and a recipient: an address or a webhook. */
export function openAttention(
  { fastify, context, values, runtime, publicUrl }: SaasBase,
  { email, events, webhooks }: SaasModules,
  admin: AdminModule,
): void {
  const { adminPassword, accountPages, operatorEmails: to = [] } = values;
  const { adminPath } = runtime;
  const isOpen = adminPath !== false && (adminPassword !== undefined || accountPages);
  if (!isOpen || (to.length === 0 && !webhooks)) return;
  const urlOf = (path: string) => `${publicUrl()}${fastify.prefix}${adminPath}/${path}`;
  const mailsOf = createAttentionMails({ outbox: email.service, to, urlOf, clock: context.clock });
  const job = createAttentionJob(context, {
    read: admin.readAttention,
    async effects(change) {
      const { name, count, path } = change.problem;
      const payload = { problem: name, count, since: toTimestamp(change.since), url: urlOf(path) };
      return [await events.event(`attention.${change.kind}`, payload), ...mailsOf(change)];
    },
  });
  context.jobs.add('attention', job);
}
