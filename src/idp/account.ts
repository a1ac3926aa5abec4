import { mountPath } from '../core/config/public-url.js';
import { access, type FastifyTypebox } from '../core/http/routes.js';
import { HOUR } from '../core/kernel/clock.js';
import { fixedWindow } from '../core/throttle/throttle.js';
import { type AccountModule, createAccountModule } from '../shared/account-pages/module.js';
import type { AccountSources, Person } from '../shared/account-pages/sources.js';
import type { IdpContext } from './context.js';
import type { PasskeysOfPeople, SecondFactorsOfPeople } from './logins.js';
import type { ConsentService } from './oidc/consents.js';
import { type Directory, isSelfRegistered } from './oidc/directory.js';
import type { FirstPartySignIn } from './oidc/first-party-sign-in.js';
import type { OidcModule } from './oidc/module.js';
import type { ResourceScopes, Resources } from './oidc/resources.js';
import type { ProvisioningModule } from './provisioning/module.js';

export interface AccountDependencies {
  provisioning: ProvisioningModule;
  oidc: OidcModule;
  consents: ConsentService;
  resources: Resources;
  directory: Directory;
  secondFactor: SecondFactorsOfPeople | undefined;
  passkeys: PasskeysOfPeople | undefined;
}

/** The account pages, with the sign-in of the provider. */
export function createAccount(context: IdpContext, deps: AccountDependencies): AccountModule {
  const { pages, issuer, hasAccountPages } = context;
  const { userOf, forgetSession, sendSignIn } = deps.oidc.signIn;
  const mount = () => mountPath(issuer());
  return createAccountModule(context, {
    path: () => `${mount()}/account`,
    signOutHref: () => `${mount()}/logout`,
    pages,
    hasAccountPages,
    signIn: {
      userOf,
      forgetSession,
      sendSignIn: (request, reply, page, handle) =>
        sendSignIn(request, reply, { returnTo: `/account${page}`, name: 'the account page' }, handle),
    },
    sources: createSources(context, deps),
  });
}

/** Each reads the audit. */
const RECEIPTS = fixedWindow('receipts', 30, HOUR);

/** What the account pages show and change. */
function createSources(
  { audit, accountData, throttle, issuer }: IdpContext,
  deps: AccountDependencies,
): AccountSources {
  const { principals, directory, agents, verification } = deps.provisioning;
  const { sessions, delegations, approvals, receipts } = deps.oidc;
  const { consents, resources } = deps;

  /** In the words of the consent page; a scope that the API no longer has keeps its name. */
  const describe = async <T extends ResourceScopes>(access: T) => {
    const known = (await resources.find(access.resource))?.scopes ?? [];
    const wordsOf = (scope: string) => known.find(({ name }) => name === scope)?.description ?? scope;
    return { ...access, permits: access.scopes.map(wordsOf) };
  };

  const recordWrongPassword = ({ id }: Person, { ip }: { ip: string }): Promise<void> =>
    audit.recordFailure({ event: 'login.failed', subject: id, ip, detail: 'the account page' });

  const provePassword: AccountSources['people']['provePassword'] = async (person, password, source) => {
    if (person.passkeyOnly) return person;
    const { id, handle } = person;
    const proven = await principals.authenticate(
      handle,
      password,
      source,
      (principal) => principal.id === id && principal.kind === 'human',
    );
    if (!proven) await recordWrongPassword(person, source);
    return proven;
  };

  return {
    people: {
      provePassword,
      async changePassword(person, passwords, _session, source) {
        const isChanged = await principals.changePassword(person, passwords, source);
        if (!isChanged) await recordWrongPassword(person, source);
        return isChanged;
      },
      keepsSession: false,
      async rename(person, name, source) {
        await principals.rename(person, name, source);
      },
      async delete(person, password, source) {
        const proven = await provePassword(person, password, source);
        // On a double click, the browser shows the response to the second form, whose account is already deleted.
        if (proven === null || !(await directory.deleteSelf(proven, source)))
          return directory.isDeleted(person.id);
        // Nothing of it is valid any more. After a crash, jobs remove sessions and consents.
        await accountData.delete(person.id);
        return true;
      },
      reservesHandles: true,
    },
    sessions: {
      list: (person) => sessions.list(person),
      async end({ id }, sid, { ip }) {
        await sessions.endOwn(id, sid, audit.entry({ event: 'session.ended', subject: id, ip }));
      },
      async endOthers({ id }, current, { ip }) {
        await sessions.endOthers(id, current.id, audit.entry({ event: 'sessions.ended', subject: id, ip }));
      },
    },
    applications: {
      async list(sub) {
        const found = (await consents.list(sub)).map(async ({ clientId, scopes, updatedAt, ...consent }) => {
          const client = await deps.directory.findClient(clientId);
          const [address = ''] = client?.redirectUris ?? [];
          const allowed = await Promise.all(consent.resources.map(describe));
          const name = client?.name || hostOf(address) || clientId;
          return client && { clientId, name, scopes, resources: allowed, since: updatedAt };
        });
        const applications = (await Promise.all(found)).filter((application) => application !== null);
        return applications.sort((a, b) => b.since - a.since);
      },
      async disconnect({ id }, clientId, { ip }) {
        await consents.revoke(id, clientId, ip);
      },
    },
    agents: {
      async list(sub) {
        const person = await deps.directory.findPrincipal(sub);
        const found = person ? await agents.ownedBy(person) : [];
        return Promise.all(
          found.map(async (agent) => ({
            ...{ ...agent, name: agent.name ?? agent.handle, isStopped: agent.state !== 'active' },
            ...{ isUnverified: isSelfRegistered(agent), uses: await agents.usesOf(agent.id) },
          })),
        );
      },
      async stop({ id, handle }, agent, source) {
        const person = await deps.directory.findPrincipal(id);
        const isOwned = person && (await agents.ownedBy(person)).some((one) => one.id === agent);
        if (isOwned) await directory.disable(agent, { ...source, by: handle });
      },
    },
    delegations: {
      async list(person) {
        const found = await delegations.list({ person });
        return Promise.all(
          found.map(({ delegation, agent }) =>
            describe({
              ...delegation,
              ...{ agent: agent.name ?? agent.handle, isUnverified: isSelfRegistered(agent) },
            }),
          ),
        );
      },
      async end({ id: person }, id, { ip }) {
        await delegations.endOwn(person, id, { ip });
      },
    },
    ...(approvals && {
      approvals: {
        list: async (sub: string) =>
          (await approvals.list(sub)).map(({ stored, agent, target }) => ({
            href: `${mountPath(issuer())}/approve/${stored.id}`,
            agent: agent.name ?? agent.handle,
            resource: target.resource.name,
            expiresAt: stored.expiresAt,
          })),
      },
    }),
    receipts: {
      async of({ id }, txn, { ip }) {
        await throttle.countKey(RECEIPTS, id, ip);
        const person = await deps.directory.findPrincipal(id);
        const owned = new Set((person ? await agents.ownedBy(person) : []).map((agent) => agent.id));
        return receipts.of(txn, (actions) =>
          actions.some((action) => action.person === id || (action.agent && owned.has(action.agent))),
        );
      },
    },
    verification,
    factors: deps.secondFactor,
    passkeys: deps.passkeys,
  };
}

const hostOf = (address: string): string => (URL.canParse(address) && new URL(address).host) || address;

/** The redirects to the account pages, and sign-up for them. */
export async function accountEntryPlugin(
  fastify: FastifyTypebox,
  { signIn, issuer }: { signIn: FirstPartySignIn; issuer(): string },
): Promise<void> {
  const config = access('public', { page: true });
  const mount = () => mountPath(issuer());

  fastify.get('/', { config }, (_request, reply) => reply.redirect(`${mount()}/account`, 302));

  // Password managers open it (W3C: A Well-Known URL for Changing Passwords).
  fastify.get('/.well-known/change-password', { config }, (_request, reply) =>
    reply.redirect(`${mount()}/account/password`, 302),
  );

  fastify.get('/account/sign-up', { config }, (request, reply) =>
    signIn.sendSignUp(request, reply, { returnTo: '/account', name: 'the account page' }),
  );
}
