import { type Localized, message } from '../http/messages.js';
import type { AppError } from '../kernel/errors.js';
import { passwordSentences } from './problems.js';

/** The problems of a form in which a person chooses a user name or a password. */
export interface CredentialProblems {
  problems: Localized[];
  wrong: { password?: true; handle?: true };
}

/**
 * Says at which field the problem of an error stands. Those of the passwords stand at the first, because both have to be
 * typed again.
 */
export function credentialProblems(error: AppError): CredentialProblems {
  const isTaken = error.code === 'handle_taken';
  if (isTaken || error.details?.some(({ path }) => path === 'handle')) {
    const problem = isTaken ? 'invite.handle-taken' : 'invite.handle-invalid';
    return { problems: [message(problem)], wrong: { handle: true } };
  }
  const isMismatch = error.code === 'passwords_differ';
  const problems = isMismatch ? [message('password.differ')] : passwordSentences(error);
  return { problems, wrong: { password: true } };
}
