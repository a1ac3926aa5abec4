import type { FastifyTypebox, Guard } from '../../core/http/routes.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import type { Documents } from '../../core/outbound/documents.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Clients, EndClient } from '../provisioning/clients.js';
import { createMetadataClients, type MetadataClients } from './client-ids.js';
import type { HostPolicy } from './hosts.js';
import type { AddressRules } from './metadata.js';
import { registrationGuard, registrationPlugin } from './plugin.js';
import { createRegistration } from './service.js';
import { registrationTokenCollection } from './store.js';
import { createRegistrationTokens } from './tokens.js';

/** Clients that the operator has not registered. */
export interface RegistrationModule {
  /** Absent if they are off. */
  metadataClients: MetadataClients | undefined;
  /** The access levels of the routes below. */
  guards: Record<string, Guard>;
  /** Registers no route if registration is off. */
  plugin(fastify: FastifyTypebox): Promise<void>;
}

export interface RegistrationModuleOptions {
  acceptsMetadata: boolean;
  acceptsRegistration: boolean;
  hosts: HostPolicy;
  allowsLoopback: boolean;
  rules: AddressRules;
  documents: Documents;
  createClient: Clients['create'];
  endClient: EndClient;
}

export function createRegistrationModule(
  context: Pick<ModuleContext, 'store' | 'audit' | 'clock' | 'random' | 'throttle' | 'jobs'>,
  options: RegistrationModuleOptions,
): RegistrationModule {
  const { acceptsMetadata, acceptsRegistration } = options;
  const metadataClients = acceptsMetadata
    ? createMetadataClients({ ...options, audit: context.audit })
    : undefined;
  if (!acceptsRegistration) return { metadataClients, guards: {}, plugin: async () => undefined };
  const documents = registrationTokenCollection(context.store);
  context.jobs.add('registration-token-purge', createExpiryPurge(documents, context.clock));
  const tokens = createRegistrationTokens(documents, context);
  const registration = createRegistration({ ...options, tokens });
  return {
    metadataClients,
    guards: { registration: registrationGuard(registration, context.throttle) },
    plugin: (fastify) => registrationPlugin(fastify, { registration }),
  };
}
