import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Localized, longTime, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import type { AccountOptions } from './page.js';
import { CodeBody, EmptyBody, FactorRemovalBody } from './schemas.js';
import type { SecondFactors } from './sources.js';

/** What is wrong with a form, and which one. */
interface Failure {
  problems: Localized[];
  wrong: { renewal?: true; removal?: true };
}

/** The page on which people set up an authenticator app, get recovery codes and remove both. */
export async function secondFactorPlugin(
  fastify: FastifyTypebox,
  options: AccountOptions & { factors: SecondFactors },
): Promise<void> {
  const { guard, factors, pages, path } = options;
  const { people, verification } = options.sources;
  const config = access('recent-person', { page: true, changesFactors: true });
  const own = () => `${path()}/second-factor`;

  /** A factor on an account with another person's address would keep the owner from taking it over by a mailed link. */
  const isUnconfirmed = (request: FastifyRequest): boolean =>
    verification?.isDue(guard.personOf(request).principal) ?? false;

  fastify.get('/second-factor', { config }, async (request, reply) =>
    pages.send(reply, await pageOf(request)),
  );

  fastify.post('/second-factor/begin', { config, schema: { body: EmptyBody } }, async (request, reply) => {
    const { id, handle } = guard.personOf(request).principal;
    if (!isUnconfirmed(request) && (await factors.stateOf(id)) === null) await factors.begin(id, handle);
    return reply.redirect(own(), 303);
  });

  fastify.post('/second-factor/confirm', { config, schema: { body: CodeBody } }, async (request, reply) => {
    if (isUnconfirmed(request)) return reply.redirect(own(), 303);
    const { code, form } = request.body;
    pages.keepForm(request, await pageOf(request));
    const { id } = guard.personOf(request).principal;
    const codes = await factors.confirm(id, code, form, requestSource(request));
    if (codes) return sendCodes(reply, codes);
    return pages.send(reply.code(401), await pageOf(request, wrongCode({})));
  });

  fastify.post(
    '/second-factor/recovery-codes',
    { config, schema: { body: CodeBody } },
    async (request, reply) => {
      const { code, form } = request.body;
      pages.keepForm(request, await pageOf(request));
      const { id } = guard.personOf(request).principal;
      if (!(await factors.verify(id, code, requestSource(request)))) {
        return pages.send(reply.code(401), await pageOf(request, wrongCode({ renewal: true })));
      }
      return sendCodes(reply, await factors.renewRecoveryCodes(id, form, requestSource(request)));
    },
  );

  fastify.post(
    '/second-factor/remove',
    { config, schema: { body: FactorRemovalBody } },
    async (request, reply) => {
      const { code, password = '' } = request.body;
      const { principal } = guard.personOf(request);
      const source = requestSource(request);
      pages.keepForm(request, await pageOf(request));
      const wrong = { removal: true } as const;
      if (!(await people.provePassword(principal, password, source))) {
        const problems = [message('account-delete.wrong')];
        return pages.send(reply.code(401), await pageOf(request, { problems, wrong }));
      }
      if (!(await factors.verify(principal.id, code, source))) {
        return pages.send(reply.code(401), await pageOf(request, wrongCode(wrong)));
      }
      await factors.remove(principal.id, source);
      return reply.redirect(`${path()}?done=factor-removed`, 303);
    },
  );

  const wrongCode = (wrong: Failure['wrong']): Failure => ({
    problems: [message('second-factor.wrong')],
    wrong,
  });

  const sendCodes = (reply: FastifyReply, codes: string[]): FastifyReply =>
    pages.send(reply, {
      template: 'account-recovery-codes',
      view: { codes, doneHref: path() },
    });

  async function pageOf(request: FastifyRequest, failure?: Failure): Promise<Page> {
    const { id, handle, passkeyOnly } = guard.personOf(request).principal;
    const state = await factors.stateOf(id);
    const mustConfirm = state === null && isUnconfirmed(request);
    const enrolment = state || mustConfirm ? null : await factors.pending(id, handle);
    const view = {
      path: own(),
      handle,
      hasPassword: !passkeyOnly,
      enrolment,
      mustConfirm,
      canBegin: state === null && enrolment === null && !mustConfirm,
      ...(state && {
        isEnrolled: true,
        since: message('account-factor.since', { when: longTime(state.since) }),
        left: message('account-factor.left', { count: String(state.recoveryCodesLeft) }),
      }),
      ...failure,
    };
    return { template: 'account-second-factor', view };
  }
}
