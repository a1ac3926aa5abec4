import { reportedSource } from '../core/http/request-details.js';
import { DAY } from '../core/kernel/clock.js';
import { AppError } from '../core/kernel/errors.js';
import { nullIfTaken } from '../core/storage/collection.js';
import type { SecondFactors } from '../shared/account-pages/sources.js';
import type { FactorService } from '../shared/factors/service.js';
import { type ChangeSource, refuseMissingKey } from '../shared/factors/store.js';
import type { PasskeyService } from '../shared/passkeys/service.js';
import type { IdpContext } from './context.js';
import type { PasskeySignUp, SecondFactor } from './oidc/directory.js';
import type { PersonMails } from './provisioning/mails.js';
import { idOfSignUp, type Principals } from './provisioning/principals.js';
import { type PrincipalCollection, principalCollection } from './provisioning/store.js';
import type { AddressVerification } from './provisioning/verification.js';

/** Second factors and passkeys, with the rules of this product. */

/** Reads the accounts of people for changes of what gives access to them. */
export type ReadPerson = ReturnType<typeof createReadPerson>;

/** @param mails absent without a mail server */
export const createReadPerson =
  (principals: PrincipalCollection, mails: PersonMails | undefined) => async (sub: string) => {
    const person = await principals.findOne({ id: sub });
    if (!person || person.state === 'deleted') return null;
    const { state, epoch, signInRevision } = person;
    // What gives the account to a new owner increments the epoch.
    const asRead = { id: sub, state, epoch: epoch ?? null, signInRevision: signInRevision ?? null };
    return {
      nextRevision: principals.changing(asRead, { inc: { signInRevision: 1 } }),
      factorMail: (change: 'added' | 'removed', source: ChangeSource) =>
        mails?.secondFactorChanged(person, change, reportedSource(source)),
      passkeyMail: (change: 'added' | 'removed', source: ChangeSource) =>
        mails?.passkeyChanged(person, change, reportedSource(source)),
    };
  };

/**
 * Loads second factors if their encryption key is configured.
 * @throws ConfigurationError without a key, if people have second factors
 */
export async function openFactors(
  context: IdpContext,
  readAccount: ReadPerson,
): Promise<FactorService | undefined> {
  const { factorEncryptionKey: key, factorEncryptionKeyPrevious: previous } = context.values;
  if (key === undefined) {
    await refuseMissingKey(context.store, { program: 'idp', variable: 'IDP_FACTOR_ENCRYPTION_KEY' });
    return undefined;
  }
  const { createFactorModule } = await import('../shared/factors/module.js');
  const keys = previous === undefined ? ([key] as const) : ([key, previous] as const);
  return createFactorModule(context, { keys, issuer: () => context.brand.name(), readAccount }).service;
}

/** The passkeys of people, and the script of the pages that use them. */
export type PasskeysOfPeople = PasskeyService & { script: string };

/** Loads passkeys if they are enabled. */
export async function openPasskeys(
  context: IdpContext,
  readAccount: ReadPerson,
): Promise<PasskeysOfPeople | undefined> {
  if (!context.values.passkeys) return undefined;
  const people = principalCollection(context.store);
  const hasPassword = async (sub: string) => (await people.findOne({ id: sub }))?.passkeyOnly !== true;
  context.signInMethods.add('password', { isHeld: hasPassword });
  const { createPasskeyModule, readPasskeyScript } = await import('../shared/passkeys/module.js');
  const { issuer: address, brand } = context;
  const { service } = createPasskeyModule(context, { address, name: () => brand.name(), readAccount });
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

/** Creates people with a passkey and without a password. */
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
      const passkey = await service.first(id, { form, credential, name: device || 'Passkey' }, source);
      if (!passkey) return null;
      // A unique violation is a repeated response.
      const created = await principals
        .registerWithPasskey({ id, ...person }, passkey, source)
        .catch(nullIfTaken);
      return created && { ...created, groups: [] };
    },
  };
}
