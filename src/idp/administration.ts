import { defineOptions, resolveOptions } from '../core/config/options.js';
import { createPublicUrl } from '../core/config/public-url.js';
import { createMessages } from '../core/http/messages.js';
import { systemRandom } from '../core/kernel/secrets.js';
import { createAudit } from '../core/ops/audit.js';
import { createCommandContext, type ModuleContext } from '../core/server/module-context.js';
import { idpServerSchema } from '../core/server/options.js';
import type { Store } from '../core/storage/collection.js';
import { openExistingStore, openStore } from '../core/storage/open.js';
import { createOutbox } from '../shared/email/outbox.js';
import { mailCollection } from '../shared/email/store.js';
import {
  type AnnounceFactor,
  FACTOR_VERSION,
  factorCollection,
  removeFactor,
} from '../shared/factors/store.js';
import { type AnnouncePasskey, passkeyCollection, removePasskeys } from '../shared/passkeys/store.js';
import { announceEnd, logoutNoticeCollection } from './oidc/backchannel/store.js';
import { SCOPES } from './oidc/claims.js';
import { createDelegations, type Delegations } from './oidc/delegations/service.js';
import { delegationCollection } from './oidc/delegations/store.js';
import { createRevocations, revocationCollection } from './oidc/revocations/service.js';
import { hasMailServer, idpSchema, idTokenAlgorithmsOf } from './options.js';
import { type AgentKeys, createAgentKeys } from './provisioning/agent-keys.js';
import { createPersonMails } from './provisioning/mails.js';
import { createProvisioningModule, type ProvisioningModule } from './provisioning/module.js';
import type { EndSessions } from './provisioning/principals.js';
import { createLastKnownAddress, principalCollection } from './provisioning/store.js';
import { registrationTokenCollection } from './registration/store.js';
import { createRegistrationTokens, type RegistrationTokens } from './registration/tokens.js';
import {
  createResourceAdministration,
  type ResourceAdministration,
  type ResourceAdministrationDependencies,
} from './resources/administration.js';
import { createResourceService, type ResourceService } from './resources/service.js';
import { resourceCollection } from './resources/store.js';
import { createTrustAdministration, type TrustAdministration } from './trust/administration.js';

/** Principals, clients and resources for the operator of the machine: the module of the server, without limits. */
export interface ProvisioningAdministration
  extends Pick<ProvisioningModule, 'principals' | 'links' | 'directory' | 'clients' | 'operators'> {
  resources: ResourceAdministration & Pick<ResourceService, 'list'>;
  /** Removes the second factor of a person; false without one. */
  removeFactor(sub: string): Promise<boolean>;
  delegations: Pick<Delegations, 'page' | 'end'>;
  agentKeys: AgentKeys;
  /** Removes all passkeys of a person and returns their number. */
  removePasskeys(sub: string): Promise<number>;
  registrationTokens: RegistrationTokens;
  trust: TrustAdministration;
  close(): Promise<void>;
}

/** The origin of commands in audit records. */
export const ON_THE_HOST = { ip: 'cli', isDisconnected: () => false };

/**
 * Opens the store of `IDP_DATABASE_URI`. A server may use it at the same time.
 *
 * @param warn called with each warning, as a sentence
 * @param create whether to create a store that does not exist
 * @throws ConfigurationError, StoreUnavailable
 */
export async function openProvisioning(
  warn: (message: string) => void,
  { create }: { create: boolean },
): Promise<ProvisioningAdministration> {
  const { databaseUri, publicUrl, es256Key, emailApiKey, emailSmtpUrl, nativeSchemes } = idpSchema.properties;
  const { values, production } = resolveOptions(
    defineOptions({
      ...{ databaseUri, publicUrl, es256Key, emailApiKey, emailSmtpUrl, nativeSchemes },
      port: idpServerSchema.properties.port,
    }),
    { program: 'idp', given: {}, env: undefined, random: systemRandom },
  );
  const store = await (create ? openStore : openExistingStore)(values.databaseUri);
  const base = values.publicUrl ?? (await createLastKnownAddress(store).recall());
  const notices = logoutNoticeCollection(store);
  const context = createCommandContext(store, { production, warn, createAudit });
  const issuer = createPublicUrl(base, values.port).get;
  const findActive = (sub: string) => principalCollection(store).findOne({ id: sub, state: 'active' });
  const revocations = createRevocations({
    revocations: revocationCollection(store),
    resources: createResourceService(resourceCollection(store), context),
    findPrincipal: findActive,
    clock: context.clock,
  });
  // A server sends the notices.
  const endSessions: EndSessions = (sub, change) =>
    revocations.endPrincipal(sub, async () => {
      await announceEnd(notices, { sub }, context.clock.now());
      return change();
    });
  const delegations = createDelegations({
    ...context,
    delegations: delegationCollection(store),
    directory: { findPrincipal: findActive },
    revocations,
  });
  const { principals, links, directory, clients, operators } = createProvisioningModule(context, {
    issuer,
    uriRules: { allowHttp: !production, nativeSchemes: values.nativeSchemes ?? [] },
    isSignupOpen: false,
    idTokenAlgorithms: idTokenAlgorithmsOf(values),
    endSessions,
    async endClient(id, change, by) {
      const removed = await revocations.end('client_id', id, change);
      await delegations.endAll({ clientId: id }, by);
      return removed;
    },
  });
  const factors = factorCollection(store);
  const passkeys = passkeyCollection(store);
  const { audit } = context;
  const announce = hasMailServer(values) ? announcementsOf(store, { ...context, issuer }) : undefined;
  return {
    ...{ principals, links, directory, clients, operators },
    agentKeys: createAgentKeys(principalCollection(store), { ...context, endSessions }),
    resources: openResources(store, {
      ...context,
      allowHttp: !production,
      async endResource(identifier, change, by) {
        const removed = await revocations.endResource(identifier, change);
        await delegations.endAll({ resource: identifier }, by);
        return removed;
      },
    }),
    delegations,
    removeFactor: (sub) =>
      removeFactor(sub, ON_THE_HOST, { ...context, factors, announce: announce?.factor }),
    removePasskeys: (sub) =>
      removePasskeys(sub, ON_THE_HOST, { passkeys, audit, announce: announce?.passkey }),
    registrationTokens: createRegistrationTokens(registrationTokenCollection(store), context),
    trust: openTrust(store, { ...context, clients, ownIssuer: issuer, allowHttp: !production }),
    close: () => store.close(),
  };
}

function openResources(
  store: Store,
  context: Omit<ResourceAdministrationDependencies, 'reservedScopes'>,
): ProvisioningAdministration['resources'] {
  const resources = resourceCollection(store);
  const { list } = createResourceService(resources, context);
  return {
    ...createResourceAdministration(resources, { ...context, reservedScopes: SCOPES }),
    list,
  };
}

function openTrust(
  store: Store,
  {
    clients,
    ...context
  }: Pick<ModuleContext, 'audit' | 'clock' | 'random'> &
    Pick<ProvisioningAdministration, 'clients'> & { ownIssuer(): string; allowHttp: boolean },
): TrustAdministration {
  const { find } = createResourceService(resourceCollection(store), context);
  return createTrustAdministration(store, {
    ...context,
    // Metadata of clients that name themselves is read when they come.
    isClient: async (id) => /^https?:/.test(id) || (await clients.find(id)) !== null,
    scopesOf: async (resource) => (await find(resource))?.scopes.map(({ name }) => name) ?? null,
  });
}

/** Enqueues the mails about removed factors and passkeys, which a server sends. */
function announcementsOf(
  store: Store,
  context: Pick<ModuleContext, 'clock' | 'random'> & { issuer(): string },
): { factor: AnnounceFactor; passkey: AnnouncePasskey } {
  const messages = createMessages();
  const outbox = createOutbox({
    ...context,
    mails: mailCollection(store),
    messages,
    publicUrl: context.issuer,
    wake: () => undefined,
  });
  const mails = createPersonMails({ ...context, outbox, messages });
  const people = principalCollection(store);
  return {
    async factor(kind, sub, version) {
      const person = await people.findOne({ id: sub });
      const change = { kind, versionField: FACTOR_VERSION, version };
      if (person) await mails.secondFactorChanged(person, change, undefined);
    },
    async passkey(change, sub) {
      const person = await people.findOne({ id: sub });
      if (person) await mails.passkeyChanged(person, change, undefined);
    },
  };
}
