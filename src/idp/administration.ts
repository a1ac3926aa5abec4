import { readSecret } from '../core/config/options.js';
import { createPublicUrl } from '../core/config/public-url.js';
import { createMessages } from '../core/http/messages.js';
import { auditCollection, createAudit } from '../core/ops/audit.js';
import { resolveStore } from '../core/server/backup.js';
import { createCommandContext, type ModuleContext } from '../core/server/module-context.js';
import { idpServerSchema } from '../core/server/options.js';
import { openExistingStore, openStore } from '../core/storage/open.js';
import { createMailContent } from '../shared/email/content.js';
import { createOutbox } from '../shared/email/outbox.js';
import { mailCollection } from '../shared/email/store.js';
import { factorCollection, removeFactor } from '../shared/factors/store.js';
import { passkeyCollection, removePasskeys } from '../shared/passkeys/store.js';
import { createReadPrincipal, leavingWithGroup, openPermissions } from './agents.js';
import { createGroups } from './groups/service.js';
import { createReadPerson } from './logins.js';
import { createIsVerified, RESERVED_CLAIMS, SCOPES } from './oidc/claims.js';
import { createGrantedAccess } from './oidc/granted-access.js';
import { createKeys } from './oidc/keys.js';
import { createReceipts } from './oidc/receipts.js';
import { hasMailServer, idpSchema, idTokenAlgorithmsOf, uriRulesOf } from './options.js';
import { createAgentKeys, createChangeAgent } from './provisioning/agent-keys.js';
import { createAgentWorkloads } from './provisioning/agent-workloads.js';
import { createPersonMails, type MailDependencies } from './provisioning/mails.js';
import { createProvisioningModule } from './provisioning/module.js';
import { createLastKnownAddress, type PrincipalDocument, principalCollection } from './provisioning/store.js';
import { registrationTokenCollection } from './registration/store.js';
import { createRegistrationTokens } from './registration/tokens.js';
import { createResourceAdministration } from './resources/administration.js';
import { createResourceService } from './resources/service.js';
import { resourceCollection } from './resources/store.js';
import { createTrustAdministration, issuerProblem } from './trust/administration.js';

/** Principals, clients and resources for the operator of the machine: the module of the server, without limits. */
export type ProvisioningAdministration = Awaited<ReturnType<typeof openProvisioning>>;

/** The client of commands in audit records. */
export const COMMAND_SOURCE = { ip: 'cli', isDisconnected: () => false };

/**
 * Opens the store of `IDP_DATABASE_URI`. A server may use it at the same time.
 *
 * @param warn called with each warning, as a sentence
 * @param create whether to create a store that does not exist
 * @throws ConfigurationError, StoreUnavailable
 */
export async function openProvisioning(warn: (message: string) => void, { create }: { create: boolean }) {
  const { port } = idpServerSchema.properties;
  const { publicUrl, es256Key, emailApiKey, emailSmtpUrl, nativeSchemes } = idpSchema.properties;
  const { trustedEmailDomains } = idpSchema.properties;
  const { values, production } = resolveStore('idp', {
    port,
    publicUrl,
    es256Key,
    emailApiKey,
    emailSmtpUrl,
    nativeSchemes,
    trustedEmailDomains,
  });
  const store = await (create ? openStore : openExistingStore)(values.databaseUri);
  const base = values.publicUrl ?? (await createLastKnownAddress(store).recall());
  const context = {
    ...createCommandContext(store, { production, warn, createAudit }),
    isVerified: createIsVerified(values.trustedEmailDomains ?? []),
    issuer: createPublicUrl(base, values.port).get,
    allowHttp: !production,
  };
  const principals = principalCollection(store);
  const groups = createGroups<PrincipalDocument>({
    ...{ ...context, store },
    leaving: leavingWithGroup(() => ({ permissions, agents: provisioning.agents })),
  });
  const resources = createResourceService(resourceCollection(store), context);
  const permissions = openPermissions(context, { groups, resources, revocations: () => granted.revocations });
  const { findPrincipal, isSubject } = createReadPrincipal(
    { ...context, people: principals, groups },
    permissions,
  );
  const granted = createGrantedAccess(context, {
    resources,
    findPrincipal,
    // A server sends the notices.
    wake: () => undefined,
  });
  const { endSessions, endClient, endResource } = granted;
  // The links of mails are encrypted with a secret of the server.
  const seed = readSecret('idp', 'IDP_ED25519_SEED');
  const mails = hasMailServer(values) && seed !== undefined ? createMails(context, seed) : undefined;
  const provisioning = createProvisioningModule(context, {
    issuer: context.issuer,
    uriRules: uriRulesOf({ values, production }),
    isSignupOpen: false,
    mails,
    idTokenAlgorithms: idTokenAlgorithmsOf(values),
    endSessions,
    groups,
    permissions,
    reservedClaims: RESERVED_CLAIMS,
    endClient,
  });
  const { clients } = provisioning;
  const change = createChangeAgent(principals, { ...context, endSessions });
  const removal = {
    ...context,
    factors: factorCollection(store),
    passkeys: passkeyCollection(store),
    readAccount: createReadPerson(principals, hasMailServer(values) ? createMails(context) : undefined),
  };
  return {
    ...provisioning,
    agentKeys: createAgentKeys({ ...context, change }),
    agentWorkloads: createAgentWorkloads({
      ...context,
      change,
      issuerProblem: (issuer) => issuerProblem(issuer, { ...context, ownIssuer: context.issuer }),
    }),
    /** Whether there is a mail server, but no seed with which a command could encrypt links. */
    lacksSeed: hasMailServer(values) && seed === undefined,
    groups,
    permissions,
    isSubject,
    resources: {
      ...createResourceAdministration(resourceCollection(store), {
        ...context,
        reservedScopes: SCOPES,
        signingAlgorithms: idTokenAlgorithmsOf(values),
        groups,
        permissions,
        endResource,
      }),
      list: resources.list,
      find: resources.find,
    },
    delegations: granted.delegations,
    /** Absent without the seed, which signs them. */
    receipts:
      seed === undefined
        ? undefined
        : createReceipts({
            ...context,
            records: auditCollection(store),
            keys: createKeys({ seeds: [seed] }),
          }),
    /** Removes the second factor of a person; false without one. */
    removeFactor: (sub: string): Promise<boolean> => removeFactor(sub, COMMAND_SOURCE, removal),
    /** Removes all passkeys of a person and returns their number. */
    removePasskeys: (sub: string): Promise<number> => removePasskeys(sub, COMMAND_SOURCE, removal),
    registrationTokens: createRegistrationTokens(registrationTokenCollection(store), context),
    trust: createTrustAdministration(store, {
      ...context,
      ownIssuer: context.issuer,
      // Metadata of clients that name themselves is read when they come.
      isClient: async (id) => /^https?:/.test(id) || (await clients.find(id)) !== null,
      scopesOf: async (resource) => (await resources.find(resource))?.scopes.map(({ name }) => name) ?? null,
    }),
    async close() {
      await context.backgroundTasks.settled();
      await store.close();
    },
  };
}

/** Enqueues mails, which a server sends. Without the seed, those about removed factors and passkeys alone. */
function createMails(
  context: ModuleContext & Pick<MailDependencies, 'issuer' | 'isVerified'>,
  seed?: string,
) {
  const { store, issuer: publicUrl } = context;
  const messages = createMessages();
  const wake = () => undefined;
  const content =
    seed === undefined
      ? undefined
      : createMailContent({ ...context, secrets: [seed], previousVariable: 'IDP_ED25519_SEED_PREVIOUS' });
  const basis = { ...context, mails: mailCollection(store), messages, publicUrl, wake };
  const outbox = createOutbox({ ...basis, ...(content && { content }) });
  return createPersonMails({ ...context, outbox, messages });
}
