import type { Scope } from '../http/scope.js';
import type { Jobs } from '../ops/jobs.js';
import type { EmailService } from './service.js';

export interface EmailPluginOptions {
  email: Pick<EmailService, 'close'>;
  /** The jobs of the server, of which one sends the mails. */
  jobs: Pick<Jobs, 'stop'>;
}

/**
 * This domain has no routes: other domains enqueue mails, and a job sends them. The plugin closes the connections to the
 * mail server after the job has stopped.
 */
export async function emailPlugin(scope: Scope, { email, jobs }: EmailPluginOptions): Promise<void> {
  scope.addHook('onClose', async () => {
    await jobs.stop();
    await email.close();
  });
}
