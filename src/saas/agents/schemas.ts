import { type Static, type TObject, Type } from 'typebox';
import type { Report } from '../../core/config/configuration-error.js';
import { option } from '../../core/config/options.js';
import { addressProblem, insecureAddress } from '../../core/config/public-url.js';
import { formatValue } from '../../core/config/validation-messages.js';
import { Closed, CodeChallenge, Envelope, Timestamp } from '../../core/http/schemas.js';
import { ReturnTo } from '../../core/outbound/provider-sign-in.js';
import type { PersonDirectory } from '../../shared/directory.js';

const Credential = Type.String({ minLength: 1, maxLength: 1024, pattern: '^[\\x21-\\x7e]+$' });

export const agentOptions = {
  agentIssuer: option(Type.Optional(Type.String()), {
    env: 'AGENT_ISSUER',
    doc: 'Accept access tokens of agents from this identity provider, which must be saas-backend/idp or compatible: its issuer (docs/saas/agents-in-your-api.md).',
    check: (issuer = '') => addressProblem(issuer) ?? insecureAddress(issuer),
  }),
  agentResource: option(Type.Optional(Type.String()), {
    env: 'AGENT_RESOURCE',
    doc: 'The public address of the API, exactly as the identity provider has registered it: https://app.example.com/api.',
    check: (resource = '') => addressProblem(resource) ?? insecureAddress(resource),
  }),
  agentClientId: option(Type.Optional(Credential), {
    env: 'AGENT_CLIENT_ID',
    doc: 'The client of this application at the identity provider, with which users connect their accounts there.',
  }),
  agentClientSecret: option(Type.Optional(Credential), {
    env: 'AGENT_CLIENT_SECRET',
    doc: 'Its secret, if it has one.',
    secret: true,
  }),
};
export type AgentConfiguration = Static<TObject<typeof agentOptions>>;

/** What is configured; undefined if agents are not accepted. */
export function configuredAgents({
  agentIssuer: issuer,
  agentResource: resource,
  agentClientId: clientId,
  agentClientSecret: clientSecret,
}: AgentConfiguration) {
  if (issuer === undefined || resource === undefined || clientId === undefined) return undefined;
  return { issuer, resource, clientId, ...(clientSecret !== undefined && { clientSecret }) };
}

/** Refuses a part of the configuration, with which agents would be refused without a reason. */
export function refusePartialAgents(values: AgentConfiguration, report: Report): void {
  const required = {
    AGENT_ISSUER: values.agentIssuer,
    AGENT_RESOURCE: values.agentResource,
    AGENT_CLIENT_ID: values.agentClientId,
  };
  const isSet = (value: unknown) => value !== undefined;
  // An invalid value counts as none, and has been reported.
  if (report.problems.length > 0 || !Object.values(required).some(isSet)) return;
  const missing = Object.entries(required).flatMap(([name, value]) => (isSet(value) ? [] : [name]));
  if (missing.length > 0)
    report.refuse(
      `Agents need ${missing.join(' and ')}, too.`,
      'Set AGENT_ISSUER, AGENT_RESOURCE and AGENT_CLIENT_ID, or none of them.',
    );
}

/** The option `agents`. */
export interface AgentsOption {
  /**
   * The identity provider in the same process, registered before: `fastify.idp`. Its people are the users, without a second account and a
   * connection, and their agents act for them. Instead of AGENT_ISSUER and the options beside it.
   */
  directory: PersonDirectory;
  /** What each scope of your own routes permits, for the page on which people let agents act. Default: the name of the scope. */
  scopes?: Readonly<Record<string, string>>;
}

/** The name of the provider in addresses. */
export const DIRECTORY = 'directory';

/** The scopes of our own routes, as people read them. */
export const OWN_SCOPES = {
  'profile:read': 'Read your profile',
  'billing:read': 'Read your subscription and invoices',
  'billing:write': 'Change your subscription',
};

export function refuseUnusableDirectory(
  { directory }: Partial<AgentsOption>,
  values: AgentConfiguration & { login?: Readonly<Record<string, unknown>> },
  report: Report,
): void {
  if (typeof directory?.findPerson !== 'function')
    report.refuse('agents.directory must be fastify.idp.', 'Register identityProvider before saasBackend.');
  const { agentIssuer, agentResource, agentClientId, login } = values;
  if ((agentIssuer ?? agentResource ?? agentClientId ?? login?.[DIRECTORY]) !== undefined)
    report.refuse(
      `The option agents replaces AGENT_ISSUER, AGENT_RESOURCE, AGENT_CLIENT_ID and a login provider named ${DIRECTORY}.`,
      'Leave them out.',
    );
}

/** The events about connections that a host application can subscribe to. */
export interface AgentEvents {
  /** The user has connected an account of the identity provider: agents that they permit there can act here. */
  'agents.connected': { userId: string; issuer: string };
  /** The user has disconnected it, and the access of agents has ended. */
  'agents.disconnected': { userId: string; issuer: string };
}

export const AGENT_EVENTS: Record<keyof AgentEvents, true> = {
  'agents.connected': true,
  'agents.disconnected': true,
};

/** A scope of RFC 6749 §3.3. */
const SCOPE = /^[\x21\x23-\x5b\x5d-\x7e]{1,128}$/;

/** @throws Error that shows the scope */
export function requireScope(scope: unknown): string {
  if (typeof scope === 'string' && SCOPE.test(scope)) return scope;
  throw new Error(`agentScope must be one scope, like files:read; given: ${formatValue(scope)}.`);
}

export const ConnectQuery = Closed({
  returnTo: ReturnTo,
  codeChallenge: CodeChallenge,
});

const AgentAccountView = Type.Object({
  issuer: Type.String({ description: 'The identity provider.' }),
  resource: Type.String({ description: 'The identifier of this API there.' }),
  connectedAt: Type.Union([Timestamp, Type.Null()], {
    description: 'When the user connected an account; null if none is connected.',
  }),
});
export type AgentAccountView = Static<typeof AgentAccountView>;
export const AgentAccountAnswer = Envelope(AgentAccountView);
