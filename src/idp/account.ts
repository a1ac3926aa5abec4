import { access, type Scope } from '../core/http/scope.js';
import type { Audit } from '../core/ops/audit.js';
import type { AccountModuleOptions } from '../shared/account-pages/module.js';
import type { AccountSources, Person } from '../shared/account-pages/service.js';
import type { OidcModule } from './oidc/module.js';
import type { OwnPages } from './oidc/own-pages.js';
import type { ResourceScopes, Resources } from './oidc/resources.js';
import type { ProvisioningModule } from './provisioning/module.js';

export interface IdpAccountDependencies
  extends Pick<AccountSources, 'verification' | 'factors' | 'passkeys' | 'forget'> {
  principals: Pick<ProvisioningModule['principals'], 'authenticate' | 'changePassword' | 'rename'>;
  directory: Pick<ProvisioningModule['directory'], 'deleteSelf' | 'isDeleted'>;
  sessions: Pick<OidcModule['sessions'], 'list' | 'endOwn' | 'endOthers'>;
  consents: Pick<OidcModule['consents'], 'list' | 'revoke'>;
  delegations: Pick<OidcModule['delegations'], 'list' | 'endOwn'>;
  findClient: NonNullable<AccountSources['applications']>['find'];
  findResource: Resources['find'];
  audit: Pick<Audit, 'record' | 'recordFailure'>;
}

/** What the account pages show and change in the identity provider. */
export function createAccountSources(deps: IdpAccountDependencies): AccountSources {
  const { principals, directory, sessions, consents, delegations, findResource, audit } = deps;

  /** In the words of the consent page; a scope that the API no longer has keeps its name. */
  const describe = async <T extends ResourceScopes>(access: T) => {
    const known = (await findResource(access.resource))?.scopes ?? [];
    const wordsOf = (scope: string) => known.find(({ name }) => name === scope)?.description ?? scope;
    return { ...access, permits: access.scopes.map(wordsOf) };
  };

  const recordWrongPassword = ({ id }: Person, { ip }: { ip: string }): Promise<void> =>
    audit.recordFailure({ event: 'login.failed', subject: id, ip, detail: 'the account page' });

  const provePassword: AccountSources['people']['provePassword'] = async (person, password, from) => {
    if (person.passkeyOnly) return person;
    const { id, handle } = person;
    const proven = await principals.authenticate(
      handle,
      password,
      from,
      (principal) => principal.id === id && principal.kind === 'human',
    );
    if (!proven) await recordWrongPassword(person, from);
    return proven;
  };

  return {
    people: {
      provePassword,
      async changePassword(person, passwords, _session, from) {
        const isChanged = await principals.changePassword(person, passwords, from);
        if (!isChanged) await recordWrongPassword(person, from);
        return isChanged;
      },
      keepsSession: false,
      async rename(person, name, from) {
        await principals.rename(person, name, from);
      },
      async delete(person, password, from) {
        const proven = await provePassword(person, password, from);
        return proven !== null && directory.deleteSelf(proven, from);
      },
      isDeleted: directory.isDeleted,
      reservesHandles: true,
    },
    sessions: {
      list: (person) => sessions.list(person),
      async end({ id }, sid, { ip }) {
        if (await sessions.endOwn(id, sid)) await audit.record({ event: 'session.ended', subject: id, ip });
      },
      async endOthers({ id }, current, { ip }) {
        await sessions.endOthers(id, current.id);
        await audit.record({ event: 'sessions.ended', subject: id, ip });
      },
    },
    applications: {
      async list(sub) {
        const describeAll = async <T extends { resources: ResourceScopes[] }>(connection: T) => ({
          ...connection,
          resources: await Promise.all(connection.resources.map(describe)),
        });
        return Promise.all((await consents.list(sub)).map(describeAll));
      },
      async disconnect({ id }, clientId, { ip }) {
        if (!(await consents.revoke(id, clientId))) return;
        await audit.record({ event: 'consent.revoked', subject: id, ip, detail: clientId });
      },
      find: deps.findClient,
    },
    delegations: {
      async list(person) {
        const found = await delegations.list({ person });
        return Promise.all(
          found.map(({ delegation, agent }) =>
            describe({ ...delegation, agent: agent.name ?? agent.handle }),
          ),
        );
      },
      async end({ id: person }, id, { ip }) {
        await delegations.endOwn(person, id, { ip });
      },
    },
    verification: deps.verification,
    factors: deps.factors,
    passkeys: deps.passkeys,
    forget: deps.forget,
  };
}

/** The sign-in of the provider, for the account pages. */
export function createAccountSignIn(own: OwnPages): AccountModuleOptions['signIn'] {
  return {
    userOf: own.userOf,
    forgetSession: own.forgetSession,
    sendSignIn: (request, reply, page, handle) =>
      own.sendSignIn(request, reply, { returnTo: `/account${page}`, name: 'the account page' }, handle),
  };
}

export interface EntranceOptions {
  own: Pick<OwnPages, 'sendSignUp'>;
  /** The path of the issuer, which includes what a proxy adds. */
  mount(): string;
}

/** The ways to the account pages. */
export async function entrancePlugin(scope: Scope, { own, mount }: EntranceOptions): Promise<void> {
  const config = access('public', { page: true });

  scope.get('/', { config }, (_request, reply) => reply.redirect(`${mount()}/account`, 302));

  // Password managers open it (W3C: A Well-Known URL for Changing Passwords).
  scope.get('/.well-known/change-password', { config }, (_request, reply) =>
    reply.redirect(`${mount()}/account/password`, 302),
  );

  scope.get('/account/sign-up', { config }, (request, reply) =>
    own.sendSignUp(request, reply, { returnTo: '/account', name: 'the account page' }),
  );
}
