import { canonicalEmail } from '../../../core/http/mailboxes.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { newId } from '../../../core/kernel/secrets.js';
import type { CommitPart } from '../../../core/ops/commit.js';
import type { AuthDependencies } from '../dependencies.js';
import { FIRST_FACTOR, newUserDocument, USER_ID_PREFIX } from '../store.js';
import type { SecondFactorStep } from './second-factor.js';
import type { SignedIn, SignIn } from './sign-in.js';

/** Sign-in and registration of users whose identity another provider has proven. */
export type FederatedSignIn = ReturnType<typeof createFederatedSignIn>;

export interface FederatedSignInDependencies extends AuthDependencies, SignIn {
  secondFactorStep: SecondFactorStep | undefined;
}

export function createFederatedSignIn(deps: FederatedSignInDependencies) {
  const { users, clock, random } = deps;
  return {
    newId: (): string => newId(USER_ID_PREFIX, clock, random),

    async hasPassword(userId: string): Promise<boolean> {
      return (await users.findOne({ id: userId }))?.passwordHash !== undefined;
    },

    /**
     * Starts a session; null if there is no such user.
     * @param authenticatedAt when the person last signed in at the provider, in Unix milliseconds; absent: now
     * @throws ACCOUNT_SUSPENDED, SECOND_FACTOR_REQUIRED, SECOND_FACTOR_ENROLMENT_REQUIRED
     */
    async signIn(
      { userId, isNew }: { userId: string; isNew: boolean },
      authenticatedAt: number | undefined,
      source: RequestSource,
    ): Promise<SignedIn | null> {
      const user = await users.findOne({ id: userId });
      if (!user) return null;
      await deps.rejectUnusable(user, source, false);
      await deps.secondFactorStep?.demand(user, FIRST_FACTOR.federated, source);
      return deps.signIn(user, source, [FIRST_FACTOR.federated], authenticatedAt, isNew);
    },

    /** Whether a person may register; called before anything is stored. @throws as `SignIn.admit` */
    admit: (
      { email, ...named }: { email: string; name?: string },
      source: RequestSource,
      isCounted: boolean,
    ) => deps.admit({ ...named, email: canonicalEmail(email) }, 'provider', source, isCounted),

    /**
     * Creates an account without a password whose address the provider has verified.
     * @param connection what is stored in the same commit
     * @throws EMAIL_TAKEN; UniqueViolation for the connection
     */
    create(
      given: { id: string; email: string; name?: string; locale?: string | undefined },
      connection: readonly CommitPart[],
      source: RequestSource,
    ): Promise<void> {
      const user = newUserDocument({ ...given, emailVerified: true }, clock.now(), deps);
      return deps.storeAccount(user, source, connection);
    },
  };
}
