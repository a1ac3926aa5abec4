import type { Scope } from '../../core/http/scope.js';
import type { BackgroundTasks } from '../../core/ops/background-tasks.js';
import type { Jobs } from '../../core/ops/jobs.js';
import type { EmailService } from './service.js';

export interface EmailPluginOptions {
  email: Pick<EmailService, 'checkServer' | 'close'>;
  /** The jobs of the server, of which one sends the mails. */
  jobs: Pick<Jobs, 'stop'>;
  backgroundTasks: BackgroundTasks;
}

/**
 * This domain has no routes: other domains enqueue mails, and a job sends them. The plugin closes the connections to the
 * mail server after the job has stopped.
 */
export async function emailPlugin(
  scope: Scope,
  { email, jobs, backgroundTasks }: EmailPluginOptions,
): Promise<void> {
  scope.addHook('onListen', async () =>
    backgroundTasks.run('check of the mail server', () => email.checkServer()),
  );
  scope.addHook('onClose', async () => {
    await jobs.stop();
    await email.close();
  });
}
