import type { Finding } from '../../core/server/doctor.js';
import type { EmailConfiguration } from './schemas.js';
import { mailServerProblem } from './transport-selection.js';

/** Whether the mail server accepts a connection. @param prefix of the variables */
export async function examineMailServer(
  values: EmailConfiguration & { publicUrl?: string | undefined },
  prefix: '' | 'IDP_',
): Promise<Finding[]> {
  const about = `${prefix}${values.emailSmtpUrl === undefined ? 'EMAIL_API_KEY' : 'EMAIL_SMTP_URL'}`;
  const problem = await mailServerProblem(values, values.publicUrl ?? 'http://localhost');
  if (problem === null) return [];
  return [
    {
      level: 'warning',
      about,
      message: `names a mail server that does not accept e-mails: ${problem}`,
      remedy: 'Check host, port, user and password, and whether this network may connect to the port.',
    },
  ];
}
