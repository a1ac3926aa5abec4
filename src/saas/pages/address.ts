import type { FastifyRequest } from 'fastify';
import { canonicalEmail } from '../../core/http/mailboxes.js';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { Email, matchesSchema } from '../../core/http/schemas.js';
import { AppError } from '../../core/kernel/errors.js';
import type { PersonGuard } from '../../shared/account-pages/guard.js';
import type { PageContext } from './context.js';
import { AddressBody } from './schemas.js';

/** What the user has typed, and what is wrong with it. */
interface FormState {
  email?: string;
  problems?: Localized[];
  wrong?: { email?: true; password?: true };
}

/** The sentence and the field of a rejected change. */
const REJECTED: Readonly<Record<string, FormState>> = {
  INVALID_CREDENTIALS: { problems: [message('account-delete.wrong')], wrong: { password: true } },
  EMAIL_TAKEN: { problems: [message('user-address.taken')], wrong: { email: true } },
};

/** The page on which users change the address of their account. */
export async function addressPlugin(
  fastify: FastifyTypebox,
  options: PageContext & { guard: PersonGuard },
): Promise<void> {
  const { accounts, guard, identityOf, pages, path } = options;
  const config = access('recent-person', { page: true, changesFactors: true });

  fastify.get('/address', { config }, (request, reply) => pages.send(reply, formOf(request)));

  fastify.post('/address', { config, schema: { body: AddressBody } }, async (request, reply) => {
    const { password } = request.body;
    const email = request.body.email.trim();
    pages.keepForm(request, formOf(request, { email }));
    if (!matchesSchema(email, Email)) {
      const problems = [message('user-sign-up.email-invalid')];
      return pages.send(reply.code(422), formOf(request, { email, problems, wrong: { email: true } }));
    }
    const identity = identityOf(request);
    if (canonicalEmail(email) === identity.user.email) {
      const problems = [message('user-address.same')];
      return pages.send(reply.code(422), formOf(request, { email, problems, wrong: { email: true } }));
    }
    const proof = hasPassword(request) ? { password: password ?? '' } : {};
    try {
      await accounts.changeEmail(identity, { email, ...proof }, requestSource(request));
    } catch (error) {
      const rejected = error instanceof AppError ? REJECTED[error.code] : undefined;
      if (!rejected) throw error;
      const { statusCode } = error as AppError;
      return pages.send(reply.code(statusCode), formOf(request, { email, ...rejected }));
    }
    return reply.redirect(`${path()}?done=address-link-sent`, 303);
  });

  const hasPassword = (request: FastifyRequest): boolean => !guard.personOf(request).principal.passkeyOnly;

  const formOf = (request: FastifyRequest, state: FormState = {}): Page => ({
    template: 'user-address',
    view: {
      action: `${path()}/address`,
      current: identityOf(request).user.email,
      hasPassword: hasPassword(request),
      ...state,
    },
  });
}
