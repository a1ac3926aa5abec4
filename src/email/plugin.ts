import type { Scope } from '../http/scope.js';
import type { Jobs } from '../ops/jobs.js';
import type { EmailService } from './service.js';

export interface EmailPluginOptions {
  email: Pick<EmailService, 'close'>;
  jobs: Pick<Jobs, 'stop'>;
}

/**
 * Mail has no routes: mails are put by the other domains and sent by a job. The plugin ends the connections to the mail
 * server with the server, after the relay has sent its last mail.
 */
export async function emailPlugin(scope: Scope, { email, jobs }: EmailPluginOptions): Promise<void> {
  scope.addHook('onClose', async () => {
    await jobs.stop();
    await email.close();
  });
}
