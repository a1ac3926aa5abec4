import { deviceOf } from '../../../core/http/request-details.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { MINUTE, SECOND } from '../../../core/kernel/clock.js';
import { newId, sha256 } from '../../../core/kernel/secrets.js';
import { createExpiryPurge } from '../../../core/ops/purge.js';
import { nullIfTaken } from '../../../core/storage/collection.js';
import { fixedWindow } from '../../../core/throttle/throttle.js';
import { ANY_PERSON, findRefusal } from '../admission.js';
import { grantedScope, offeredScopes } from '../authorize/request.js';
import type { BackchannelLogout } from '../backchannel/service.js';
import type { Client } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { PENDING_LIFETIME_MS } from '../grant-tokens.js';
import { createPendingRequests, INTERVAL } from '../pending.js';
import { findTargets, scopesOf, type Target } from '../resources.js';
import type { SessionService, SignedInUser } from '../sessions.js';
import type { OidcShared } from '../shared.js';
import type { TokenResponse } from '../tokens/issuance.js';
import type { TokenRequest } from '../tokens/request.js';
import { DEVICE_CODE, hashUserCode, newUserCode, readUserCode } from './codes.js';
import { DEVICE_REQUEST, type DeviceRequestDocument, deviceRequestCollection } from './store.js';

/** The sign-in of a device (RFC 8628). */
export type DeviceFlow = ReturnType<typeof createDeviceFlow>;

/** A request that awaits a decision. */
export interface DeviceRequest extends DeviceRequestDocument {
  userCode: string;
  client: Client;
  targets: readonly Target[];
}

/** Requests of one address block, and of one client, which bound what is stored. */
const REQUESTS_OF_ADDRESS = fixedWindow('device.address', 30, 10 * MINUTE);
const REQUESTS_OF_CLIENT = fixedWindow('device.client', 1000, 10 * MINUTE);

/**
 * User codes that are entered: by one person, from one address block and in total (RFC 8628 §5.1). With a thousand valid
 * codes, all guesses of a day together find one of them with a probability of six percent at most.
 */
const CODES_OF_PERSON = fixedWindow('device.person', 20, 10 * MINUTE);
const CODES_OF_ADDRESS = fixedWindow('device.entries', 60, 10 * MINUTE);
const CODES_OF_ALL = fixedWindow('device.all', 10_000, 10 * MINUTE);

const MAX_SCOPE_LENGTH = 1024;

export function createDeviceFlow(
  deps: OidcShared & { sessions: SessionService; backchannel: BackchannelLogout },
) {
  const { store, jobs, consents, sessions, backchannel, directory, resources } = deps;
  const { throttle, seeds, clock, random } = deps;
  const requests = deviceRequestCollection(store);
  jobs.add('device-request-purge', createExpiryPurge(requests, clock));

  const pending = createPendingRequests(
    requests,
    { events: 'device', id: DEVICE_REQUEST, code: DEVICE_CODE },
    deps,
  );

  const findPending = async (userCode: string): Promise<DeviceRequestDocument | null> => {
    const hashes = seeds.map((seed) => hashUserCode(userCode, seed));
    const stored = await requests.findOne({ userCodeHash: { in: hashes } });
    return stored && stored.state === 'pending' && pending.isOpen(stored) ? stored : null;
  };

  /** The same for a code that this person has entered before, which is no guess. */
  const find = async (userCode: string): Promise<DeviceRequest | null> => {
    const stored = await findPending(userCode);
    const client = stored && (await directory.findClient(stored.clientId));
    if (!stored || !client || mayNotBegin(client)) return null;
    const { scope, resources: asked = [] } = stored;
    const names = asked.map(({ resource }) => resource);
    const scopes = [scope, ...asked.flatMap((one) => one.scopes)].join(' ');
    const targets = await findTargets(names, scopes, resources);
    if ('error' in targets || findRefusal({ targets }, ANY_PERSON)) return null;
    return { ...stored, userCode, client, targets };
  };

  return {
    /** Starts a sign-in. @throws unauthorized_client, invalid_scope, invalid_target, invalid_request, RATE_LIMITED */
    async begin(
      client: Client,
      { scope = '', resources: names }: { scope: string | undefined; resources: readonly string[] },
      source: RequestSource,
    ): Promise<{ deviceCode: string; userCode: string; expiresIn: number; interval: number }> {
      const refusal = mayNotBegin(client);
      if (refusal) throw refusal;
      if (scope.length > MAX_SCOPE_LENGTH) {
        throw oidcErrors.invalid_request({ message: `scope is longer than ${MAX_SCOPE_LENGTH} characters.` });
      }
      const targets = await findTargets(names, scope, resources);
      if ('error' in targets) throw refuseTarget(targets.error, targets.description);
      const unfit = findRefusal({ targets }, ANY_PERSON);
      if (unfit) throw oidcErrors.invalid_target({ message: unfit.description });
      await throttle.count(REQUESTS_OF_ADDRESS, source.ip);
      await throttle.countKey(REQUESTS_OF_CLIENT, client.id, source.ip);
      const { place, system } = deviceOf(source);
      const offered = await offeredScopes(client, deps.groups);
      const now = clock.now();
      // Until no other request has the user code.
      for (;;) {
        const id = newId(DEVICE_REQUEST, clock, random);
        const [deviceCode, userCode] = [pending.newCode(id), newUserCode(random)];
        const isStored = await requests
          .insert({
            id,
            userCodeHash: hashUserCode(userCode, seeds[0]),
            codeHash: sha256(deviceCode),
            clientId: client.id,
            scope: grantedScope(scope, targets, offered, client),
            ...(targets.length > 0 && { resources: scopesOf(targets) }),
            ...(place !== undefined && { place }),
            ...(system !== undefined && { system }),
            createdAt: now,
            expiresAt: now + PENDING_LIFETIME_MS,
            interval: INTERVAL,
            state: 'pending',
          })
          .then(() => true, nullIfTaken);
        if (isStored)
          return { deviceCode, userCode, expiresIn: PENDING_LIFETIME_MS / SECOND, interval: INTERVAL };
      }
    },

    /**
     * The request with the code that a person has typed; `null` for an unknown, expired or used one. Every call is a guess.
     * @throws RATE_LIMITED
     */
    async enter(typed: string, sub: string, ip: string): Promise<DeviceRequest | null> {
      await throttle.countKey(CODES_OF_PERSON, sub, ip);
      await throttle.count(CODES_OF_ADDRESS, ip);
      await throttle.countKey(CODES_OF_ALL, 'all', ip);
      const userCode = readUserCode(typed);
      return userCode === undefined ? null : find(userCode);
    },

    find,

    /** Allows the device to sign in as the user. Returns whether it is allowed now. */
    async approve(
      request: DeviceRequest,
      { principal, session }: SignedInUser,
      ip: string,
    ): Promise<boolean> {
      const { client, scope, targets } = request;
      if (findRefusal(request, principal)) return false;
      const { revocations } = await consents.remember(principal.id, client.id, scope, scopesOf(targets));
      const approval = {
        sub: principal.id,
        ...(principal.epoch !== undefined && { epoch: principal.epoch }),
        sid: session.id,
        ...(session.amr && { amr: session.amr }),
        authTime: session.authTime,
        ...(revocations > 0 && { revocations }),
        approvedAt: clock.now(),
      };
      const by = { subject: principal.id, ip, detail: client.id };
      const notice = await backchannel.notice(client, session, scope);
      return pending.decide(request, { state: 'approved', approval }, by, [
        sessions.extending(session),
        notice,
      ]);
    },

    /** Returns whether it is denied now. */
    deny: (request: DeviceRequest, { principal }: SignedInUser, ip: string): Promise<boolean> =>
      pending.decide(request, { state: 'denied' }, { subject: principal.id, ip, detail: request.client.id }),

    /**
     * Exchanges the device code for tokens, once.
     * @throws authorization_pending, slow_down, access_denied, expired_token, invalid_grant, invalid_request, invalid_target,
     * unauthorized_client
     */
    async poll(client: Client, request: TokenRequest): Promise<TokenResponse> {
      const refusal = mayNotBegin(client);
      if (refusal) throw refusal;
      return pending.poll(client, 'device_code', request);
    },
  };
}

function mayNotBegin(client: Client): Error | undefined {
  const refuse = (message: string) => oidcErrors.unauthorized_client({ message });
  if (!client.device) return refuse('The client is not allowed to use the device flow.');
  return findRefusal({ client }, ANY_PERSON) ? refuse('Only people can sign in on a device.') : undefined;
}

const refuseTarget = (error: string, message: string): Error =>
  error === 'invalid_scope' ? oidcErrors.invalid_scope({ message }) : oidcErrors.invalid_target({ message });
