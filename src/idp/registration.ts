import type { Documents } from '../core/outbound/documents.js';
import type { ModuleContext } from '../core/server/module-context.js';
import { DOCUMENT_REQUESTS } from './oidc/client-assertion.js';
import type { Client, Directory } from './oidc/directory.js';
import { type IdpConfiguration, idTokenAlgorithmsOf } from './options.js';
import {
  documentUriProblem,
  logoutUriProblem,
  redirectUriProblem,
  type UriRules,
} from './provisioning/client-uris.js';
import type { Clients, EndClient } from './provisioning/clients.js';
import type { RegistrationModule } from './registration/module.js';

/** Loads what registers clients without the operator, if any of it is configured. */
export async function openRegistration(
  context: ModuleContext,
  values: IdpConfiguration,
  {
    clients,
    uriRules,
    documents,
    endClient,
  }: { clients: Clients; uriRules: UriRules; documents: Documents; endClient: EndClient },
): Promise<RegistrationModule | undefined> {
  const { clientIdMetadata, clientRegistration } = values;
  if (!clientIdMetadata && !clientRegistration) return undefined;
  const { createRegistrationModule } = await import('./registration/module.js');
  // Unlike the operator, who knows the application, these never use http beyond this machine.
  const strict = { ...uriRules, allowHttp: false };
  return createRegistrationModule(context, {
    acceptsMetadata: clientIdMetadata,
    acceptsRegistration: clientRegistration,
    hosts: {
      allowed: values.clientIdMetadataHosts,
      denied: values.clientIdMetadataDeniedHosts ?? [],
    },
    allowsLoopback: values.loopbackDocuments,
    rules: {
      redirectUri: (uri) => redirectUriProblem(uri, strict),
      documentUri: documentUriProblem,
      logoutUri: (uri) => logoutUriProblem(uri, strict),
      idTokenAlgorithms: idTokenAlgorithmsOf(values),
    },
    documents,
    createClient: clients.create,
    endClient,
  });
}

type ClientDirectory = Pick<Directory, 'findClient' | 'resolveClient' | 'recordUse'>;

const isAddress = (clientId: string): boolean => /^https?:/.test(clientId);

/** The clients of the operator and those that name themselves, by their identifiers. */
export function createClientDirectory(
  clients: Pick<Clients, 'find' | 'recordUse'>,
  metadataClients: RegistrationModule['metadataClients'],
  { throttle }: Pick<ModuleContext, 'throttle'>,
): ClientDirectory {
  const findClient = async (clientId: string): Promise<Client | null> =>
    isAddress(clientId) ? ((await metadataClients?.find(clientId)) ?? null) : clients.find(clientId);
  const resolveAddress: Directory['resolveClient'] = async (clientId, { ip, allowsStale }) => {
    const pay = () => throttle.count(DOCUMENT_REQUESTS, ip);
    return (await metadataClients?.resolve(clientId, { pay, allowsStale })) ?? null;
  };
  return {
    findClient,
    resolveClient: (clientId, options) =>
      isAddress(clientId) ? resolveAddress(clientId, options) : clients.find(clientId),
    async recordUse(client) {
      if (client.origin === 'dynamic') await clients.recordUse(client);
      if (client.origin === 'metadata') await metadataClients?.recordUse(client.id);
    },
  };
}
