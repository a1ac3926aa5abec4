import type { FastifyTypebox, Guard } from '../../core/http/routes.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import type { Documents } from '../../core/outbound/documents.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Clients, EndClient } from '../provisioning/clients.js';
import { createMetadataClients, type MetadataClientDependencies } from './client-ids.js';
import type { HostPolicy } from './hosts.js';
import type { AddressRules } from './metadata.js';
import { registrationGuard, registrationPlugin } from './plugin.js';
import { createRegistration } from './service.js';
import { registrationTokenCollection } from './store.js';
import { createRegistrationTokens } from './tokens.js';

/** Clients that the operator has not registered. */
export type RegistrationModule = ReturnType<typeof createRegistrationModule>;

export interface RegistrationModuleOptions {
  acceptsMetadata: boolean;
  acceptsRegistration: boolean;
  /** Whether public clients register without a token. */
  isOpen: boolean;
  hosts: HostPolicy;
  idProblem: MetadataClientDependencies['idProblem'];
  rules: AddressRules;
  documents: Documents;
  createClient: Clients['create'];
  endClient: EndClient;
}

export function createRegistrationModule(context: ModuleContext, options: RegistrationModuleOptions) {
  const metadataClients = options.acceptsMetadata
    ? createMetadataClients({ ...options, ...context })
    : undefined;
  const registration = options.acceptsRegistration ? openRegistration(context, options) : undefined;
  const guards: Record<string, Guard> = registration
    ? { registration: registrationGuard(registration, context.throttle) }
    : {};
  return {
    /** Absent if they are off. */
    metadataClients,
    /** The access levels of the routes below. */
    guards,
    /** Registers no route if registration is off. */
    async plugin(fastify: FastifyTypebox) {
      if (registration) await registrationPlugin(fastify, { registration });
    },
  };
}

function openRegistration(context: ModuleContext, options: RegistrationModuleOptions) {
  const documents = registrationTokenCollection(context.store);
  context.jobs.add('registration-token-purge', createExpiryPurge(documents, context.clock));
  return createRegistration({ ...options, tokens: createRegistrationTokens(documents, context) });
}
