import type { Resolved } from '../../core/config/options.js';
import type { BrandColours } from '../../core/http/brand.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import type { Metrics } from '../../core/ops/metrics.js';
import { MAX_COMPARED, MAX_COUNTED, oldestPendingAge, pendingCount } from '../../core/ops/outbox-metrics.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { createMailAdministration } from './administration.js';
import { createMailContent, type MailContentOptions } from './content.js';
import { emailPlugin } from './plugin.js';
import type { EmailConfiguration } from './schemas.js';
import { createEmailService, type EmailServiceOptions } from './service.js';
import { type Mails, mailCollection } from './store.js';
import { loadTemplates, type MailName, ownTemplates } from './templates.js';
import { openTransport } from './transport-selection.js';

/** E-mail: an outbox in the store, and the job that sends it. */
export type EmailModule = ReturnType<typeof createEmailModule>;

export interface EmailModuleOptions extends Pick<EmailServiceOptions, 'publicUrl' | 'settings' | 'messages'> {
  config: Resolved<EmailConfiguration>;
  /** The mails that the product sends. Default: all. */
  names?: readonly MailName[];
  /** Encrypt the mails in the store; the current one first. */
  secrets: MailContentOptions['secrets'];
  previousVariable: MailContentOptions['previousVariable'];
  colours: BrandColours;
}

export function createEmailModule(
  { store, commit, jobs, clock, random, log, metrics, audit, backgroundTasks, accountData }: ModuleContext,
  options: EmailModuleOptions,
) {
  const { config, colours, messages, publicUrl, settings } = options;
  const { emailTemplateDir, fromEmail, fromName, emailReplyTo } = config.values;
  const mails = mailCollection(store);
  if (metrics) measureOutbox(metrics, { mails, clock });
  const wake = () => void jobs.runNow('mail');
  const service = createEmailService({
    mails,
    content: createMailContent({ ...options, random }),
    templates: loadTemplates({ folder: emailTemplateDir, colours }),
    messages,
    transport: openTransport(config, { publicUrl: publicUrl(), clock, log }),
    from: { email: fromEmail, name: fromName },
    replyTo: emailReplyTo,
    publicUrl,
    settings,
    wake,
    clock,
    random,
    log,
  });
  accountData.add({
    section: { name: 'mails', read: service.listByUser },
    delete: service.deleteByUser,
  });
  jobs.add('mail', service.jobs.relay);
  jobs.add('mail-purge', service.jobs.purge);
  const { names } = options;
  const administration = createMailAdministration({
    ...{ mails, commit, service, names, wake, audit, clock },
    ownTemplates: ownTemplates(emailTemplateDir),
  });
  return {
    service,
    /** For the admin area. */
    administration,
    plugin: (fastify: FastifyTypebox) => emailPlugin(fastify, { email: service, jobs, backgroundTasks }),
  };
}

/** Declares the metrics of the outbox. */
function measureOutbox(metrics: Metrics, { mails, clock }: { mails: Mails; clock: Clock }): void {
  metrics.storeGauge(
    { name: 'mail_outbox_mails', help: `Mails that are not sent yet, counted up to ${MAX_COUNTED}.` },
    () => pendingCount(mails),
  );
  metrics.storeGauge(
    {
      name: 'mail_outbox_oldest_age_seconds',
      help: `Age of the oldest mail among the ${MAX_COMPARED} that are attempted next; 0 if there is none.`,
    },
    () => oldestPendingAge(mails, clock),
  );
}
