import { authErrors } from './auth/errors.js';
import type { AuthModule } from './auth/module.js';
import type { SaasBase } from './base.js';
import { createOperatorSessions } from './operators/guard.js';
import { OPERATOR_PAGE } from './pages/operator.js';

export type SaasOperators = ReturnType<typeof createOperators>;

/** Users with a role in the admin area. Nobody has one before an operator or a command gives it. */
export function createOperators(
  { context: { clock }, values, runtime, fastify, userDocuments: users, below, accountHref }: SaasBase,
  { visitorOf }: AuthModule,
) {
  const sessions = createOperatorSessions({
    ...{ users, clock, visitorOf, errors: authErrors },
    signInHref: values.accountPages
      ? (page) => `${accountHref()}${OPERATOR_PAGE}?${new URLSearchParams({ page })}`
      : undefined,
  });
  const home = () => below() + fastify.prefix + runtime.adminPath;
  return {
    ...sessions,
    signOutHref: () => `${accountHref()}/sign-out`,
    /** A page of the admin area; its start for any other address. */
    hrefOf(page: string): string {
      const { pathname, search } = new URL(home() + page, 'http://operator');
      return pathname === home() || pathname.startsWith(`${home()}/`) ? pathname + search : home();
    },
  };
}
