import type { FastifyReply, FastifyRequest } from 'fastify';
import { requestSource, routeRules } from '../../core/http/routes.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { Operator } from '../../core/ops/audit.js';

/** What an operator may do, from the least to the most: read, help users, everything. */
export const OPERATOR_ROLES = ['read-only', 'support', 'owner'] as const;
export type OperatorRole = (typeof OPERATOR_ROLES)[number];

/** A user with a role, whose request was admitted. */
export interface NamedOperator {
  id: string;
  name: string;
  role: OperatorRole;
  sessionId: string;
  /**
   * Demands another role than that of the route, and as recent a sign-in. Returns the reply that sends a browser to the sign-in.
   * @throws FORBIDDEN, REAUTHENTICATION_REQUIRED
   */
  demand(needed: OperatorRole, reply: FastifyReply): FastifyReply | undefined;
}

const admitted = new WeakMap<FastifyRequest, NamedOperator>();

/** For the guard, which has verified the session and the role. */
export const admitOperator = (request: FastifyRequest, operator: NamedOperator) =>
  admitted.set(request, operator);

/** Undefined for the credentials of the configuration, and for operators whose role is not one of these. */
export const namedOperatorOf = (request: FastifyRequest): NamedOperator | undefined => admitted.get(request);

/** Who makes a change, for the audit: the ID of the user, or the name of the credentials. */
export const operatorIn = (request: FastifyRequest, name: string): Operator => ({
  name: admitted.get(request)?.id ?? name,
  ip: requestSource(request).ip,
});

/** The role that a request needs: a change for which nothing is declared needs the highest. */
export const neededRole = ({ method, routeOptions }: FastifyRequest): OperatorRole =>
  routeRules(routeOptions).operatorRole ?? (['GET', 'HEAD'].includes(method) ? 'read-only' : 'owner');

/** @throws FORBIDDEN */
export function demandOperatorRole(own: OperatorRole, needed: OperatorRole): void {
  if (OPERATOR_ROLES.indexOf(own) >= OPERATOR_ROLES.indexOf(needed)) return;
  throw httpErrors.FORBIDDEN({
    message: `This needs the role ${needed}, and yours is ${own}. Ask an owner of the admin area.`,
  });
}
