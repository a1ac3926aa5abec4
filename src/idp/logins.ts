import { DAY } from '../core/kernel/clock.js';
import { AppError } from '../core/kernel/errors.js';
import type { SecondFactors } from '../shared/account-pages/service.js';
import type { FactorService } from '../shared/factors/service.js';
import {
  type AnnounceFactor,
  FACTOR_VERSION,
  factorCollection,
  readFactorVersion,
  refuseMissingKey,
} from '../shared/factors/store.js';
import type { PasskeyService } from '../shared/passkeys/service.js';
import type { AnnouncePasskey } from '../shared/passkeys/store.js';
import type { IdpContext } from './context.js';
import type { PasskeySignUp, SecondFactor } from './oidc/directory.js';
import type { PersonMails } from './provisioning/mails.js';
import { idOfSignUp, type Principals } from './provisioning/principals.js';
import type { PrincipalCollection } from './provisioning/store.js';
import type { AddressVerification } from './provisioning/verification.js';

/** Second factors and passkeys, with the rules of this product. */

/** Enqueues the mails about changes of second factors and passkeys. */
export function createLoginMails(principals: PrincipalCollection, mails: PersonMails) {
  const factor: AnnounceFactor = async (kind, sub, version, source) => {
    const person = await principals.findOne({ id: sub });
    const change = { kind, versionField: FACTOR_VERSION, version };
    if (person) await mails.secondFactorChanged(person, change, source);
  };
  const passkey: AnnouncePasskey = async (change, sub, source) => {
    const person = await principals.findOne({ id: sub });
    if (person) await mails.passkeyChanged(person, change, source);
  };
  return { factor, passkey };
}

/**
 * Loads second factors if their encryption key is configured.
 * @throws ConfigurationError without a key, if people have second factors
 */
export async function openFactors(
  context: IdpContext,
  announce: AnnounceFactor | undefined,
): Promise<FactorService | undefined> {
  const { factorEncryptionKey: key, factorEncryptionKeyPrevious: previous } = context.values;
  if (key === undefined) {
    const { store, versions } = context;
    await refuseMissingKey(store, { program: 'idp', variable: 'IDP_FACTOR_ENCRYPTION_KEY' });
    // For the mails about factors that a command has removed before.
    const factors = factorCollection(store);
    versions.add(async (sub, field) =>
      field === FACTOR_VERSION ? readFactorVersion(factors, sub) : undefined,
    );
    return undefined;
  }
  const { createFactorModule } = await import('../shared/factors/module.js');
  const keys = previous === undefined ? ([key] as const) : ([key, previous] as const);
  return createFactorModule(context, { keys, issuer: () => context.brand.name(), announce }).service;
}

/** The passkeys of people, and the script of the pages that use them. */
export type PasskeysOfPeople = PasskeyService & { script: string };

/** Loads passkeys if they are enabled. */
export async function openPasskeys(
  context: IdpContext,
  announce: AnnouncePasskey | undefined,
): Promise<PasskeysOfPeople | undefined> {
  if (!context.values.passkeys) return undefined;
  const { createPasskeyModule, readPasskeyScript } = await import('../shared/passkeys/module.js');
  const { issuer: address, brand } = context;
  const { service } = createPasskeyModule(context, { address, name: () => brand.name(), announce });
  return { ...service, script: readPasskeyScript() };
}

/** For the sign-in and the account page. */
export type SecondFactorsOfPeople = SecondFactor & SecondFactors;

/** What the sign-in asks about second factors, with the rule of the operator. */
export function createSecondFactor(
  { values: { secondFactor: rule, secondFactorGraceDays }, clock }: IdpContext,
  factors: FactorService,
  verification: AddressVerification | undefined,
): SecondFactorsOfPeople {
  const requiredFrom: SecondFactorsOfPeople['requiredFrom'] = async ({ id, operatorSince, passkeyOnly }) => {
    // A passkey is two factors.
    if (passkeyOnly) return null;
    const isSubject = rule === 'required' || (rule === 'operators' && operatorSince !== undefined);
    return isSubject ? factors.requiredFrom(id, secondFactorGraceDays * DAY) : null;
  };

  return {
    ...factors,
    requiredFrom,
    isEnrolled: async (sub) => (await factors.stateOf(sub)) !== null,

    async mustEnrol(person) {
      const from = await requiredFrom(person);
      return from !== null && from <= clock.now();
    },

    async awaitsConfirmation(person, source) {
      if (!verification?.isDue(person)) return false;
      await verification.sendAgain(person.id, source).catch((error: unknown) => {
        // A person who signs in that often has a link already.
        if (!(error instanceof AppError && error.code === 'RATE_LIMITED')) throw error;
      });
      return true;
    },
  };
}

/**
 * Creates people with a passkey and without a password. The passkey is stored first: after a crash in between, no account has
 * the user name, and the passkey belongs to no account.
 */
export function createPasskeySignUp(
  { script, ...service }: PasskeysOfPeople,
  principals: Principals,
): PasskeySignUp {
  return {
    script,
    creationOptions: (form) =>
      // The page fills in the user name.
      service.firstCreationOptions({ id: idOfSignUp(form), handle: '' }, form),
    async create({ form, credential, ...person }, source) {
      const id = idOfSignUp(form);
      const device = [source.browser?.(), source.system?.()].filter((part) => part !== undefined).join(', ');
      const isAdded = await service.add(id, { form, credential, name: device || 'Passkey' }, source);
      if (!isAdded) return null;
      return principals.registerWithPasskey({ id, ...person }, source).catch(async (error: unknown) => {
        // After an outage of the store, the account may exist.
        if (error instanceof AppError) await service.forget(id);
        throw error;
      });
    },
  };
}
