import { createDocuments, type Documents, documentCollection } from '../core/outbound/documents.js';
import { createOutbound } from '../core/outbound/request.js';
import type { createReadPrincipal } from './agents.js';
import type { IdpContext } from './context.js';
import { DOCUMENT_REQUESTS } from './oidc/client-assertion.js';
import {
  asAgent,
  type Client,
  clientOfAgent,
  type Directory,
  isPublicClient,
  isSub,
} from './oidc/directory.js';
import { clientRegistrationOf, idTokenAlgorithmsOf, uriRulesOf } from './options.js';
import {
  documentUriProblem,
  metadataIdProblem,
  noticeUriProblem,
  redirectUriProblem,
} from './provisioning/client-uris.js';
import type { Clients, EndClient } from './provisioning/clients.js';
import type { ProvisioningModule } from './provisioning/module.js';
import type { RegistrationModule } from './registration/module.js';
import { subjectLinkCollection } from './trust/store.js';

/** The documents that clients and other providers publish, with their copies in the store. */
export function createPublicDocuments({ store, clock, jobs, log, values }: IdpContext): Documents {
  const documents = createDocuments(documentCollection(store), {
    send: createOutbound({ reach: values.loopbackDocuments ? 'loopback' : 'public' }),
    clock,
    onFailure: (uri, reason) => log.info({ uri, reason }, 'a document of a client cannot be read'),
  });
  jobs.add('document-purge', documents.purge);
  return documents;
}

/** Loads what registers clients without the operator, if any of it is configured. */
export async function openRegistration(
  context: IdpContext,
  { clients, documents, endClient }: { clients: Clients; documents: Documents; endClient: EndClient },
): Promise<RegistrationModule | undefined> {
  const { values } = context;
  const accepted = clientRegistrationOf(values);
  if (!accepted.acceptsMetadata && !accepted.acceptsRegistration) return undefined;
  const { createRegistrationModule } = await import('./registration/module.js');
  // Unlike the operator, who knows the application, these never use http beyond this machine.
  const strict = { ...uriRulesOf(context), allowHttp: false };
  return createRegistrationModule(context, {
    ...accepted,
    isOpen: values.mcp,
    hosts: { allowed: values.clientIdMetadataHosts, denied: values.clientIdMetadataDeniedHosts ?? [] },
    idProblem: (text) => metadataIdProblem(text, values.loopbackDocuments),
    rules: {
      redirectUri: (uri) => redirectUriProblem(uri, strict),
      openRedirectUri: (uri) => redirectUriProblem(uri, strict) ?? openProblem(uri, strict),
      documentUri: documentUriProblem,
      logoutUri: (uri) => noticeUriProblem(uri, strict),
      idTokenAlgorithms: idTokenAlgorithmsOf(values),
    },
    documents,
    createClient: clients.create,
    endClient,
  });
}

/** Redirect URIs without a token: https, loopback, or a scheme that the operator has named. */
const openProblem = (uri: string, { nativeSchemes }: { nativeSchemes: readonly string[] }): string | null =>
  ['http', 'https', ...nativeSchemes].some((scheme) => uri.toLowerCase().startsWith(`${scheme}:`))
    ? null
    : 'must be https, or http to this machine, without an initial access token';

const isAddress = (clientId: string): boolean => /^https?:/.test(clientId);

const STOPPED = 'The agent that presents itself with this client metadata document has been stopped.';
const IMPERSONATED =
  'The client metadata document of an agent must name private_key_jwt, or https redirect URIs alone: anybody can present a public client that returns to a device.';

/** The principals, and the clients of the operator and those that name themselves, by their identifiers. */
export function createDirectory(
  { throttle }: IdpContext,
  { principals, directory, clients, agents, addresses }: ProvisioningModule,
  { complete, findPrincipal, agentsWithRules }: Omit<ReturnType<typeof createReadPrincipal>, 'isSubject'>,
  metadataClients: RegistrationModule['metadataClients'],
): Directory {
  /** What metadata says about a client; with the agent that presents itself with it, if there is one. */
  const withAgent = async (client: Client): Promise<Client | { problem: string }> => {
    const sub = await addresses.ofMetadata(client.id);
    if (sub === undefined) return client;
    const agent = await findPrincipal(sub);
    if (agent?.clientMetadata !== client.id) return { problem: STOPPED };
    const isProven = !isPublicClient(client) || client.redirectUris.every((uri) => uri.startsWith('https:'));
    return isProven ? { ...client, ...asAgent(agent) } : { problem: IMPERSONATED };
  };

  const findOwn = async (clientId: string): Promise<Client | null> => {
    const agent = isSub(clientId) ? await findPrincipal(clientId) : null;
    return agent?.redirectUris ? clientOfAgent(agent) : clients.find(clientId);
  };

  return {
    authenticate: async (...given) => complete(await principals.authenticate(...given)),
    findPrincipal,
    agentsWithRules,
    findByName: directory.findByName,
    recordAgentUse: agents.recordUse,
    isDeleted: directory.isDeleted,
    async findClient(clientId) {
      if (!isAddress(clientId)) return findOwn(clientId);
      const client = await metadataClients?.find(clientId);
      const found = client ? await withAgent(client) : null;
      return found && 'problem' in found ? null : found;
    },
    async resolveClient(clientId, { ip, allowsStale }) {
      if (!isAddress(clientId)) return findOwn(clientId);
      const pay = () => throttle.count(DOCUMENT_REQUESTS, ip);
      const client = await metadataClients?.resolve(clientId, { pay, allowsStale });
      return !client || 'problem' in client ? (client ?? null) : withAgent(client);
    },
    async recordUse(client) {
      if (client.origin === 'metadata') await metadataClients?.recordUse(client.id);
      else if (!client.agent) await clients.recordUse(client);
    },
  };
}

/** Loads which other providers are trusted, if identity assertions are enabled. Links are deleted with their principal in any case. */
export async function openTrust({ store, values, accountData }: IdpContext) {
  const subjectLinks = subjectLinkCollection(store);
  accountData.add({ delete: (sub) => subjectLinks.deleteMany({ principal: sub }) });
  if (values.identityAssertions === 'off') return undefined;
  const { createTrustService } = await import('./trust/service.js');
  return createTrustService(store);
}
