import { createMessages } from '../../../src/core/http/messages.js';
import { systemClock as clock } from '../../../src/core/kernel/clock.js';
import { systemRandom as random } from '../../../src/core/kernel/secrets.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { createAccountMails } from '../../../src/saas/auth/mails.js';
import { createMailContent } from '../../../src/shared/email/content.js';
import { createOutbox } from '../../../src/shared/email/outbox.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { verifyAssertion, verifyCreation } from '../../../src/shared/passkeys/ceremony.js';
import { createPasskeyService, type PasskeyService } from '../../../src/shared/passkeys/service.js';
import { passkeyCollection, usedChallengeCollection } from '../../../src/shared/passkeys/store.js';

export const ORIGIN = 'https://app.example.test';
export const FROM = { ip: '192.0.2.1', isDisconnected: () => false };

/** Passkeys of a process whose mails are stored in the outbox. */
export function reportingService(store: Store): PasskeyService {
  const url = () => ORIGIN;
  const outbox = createOutbox({
    ...{ mails: mailCollection(store), messages: createMessages(), publicUrl: url },
    ...{ wake: () => undefined, clock, random },
    content: createMailContent({ secrets: ['of-mails'], previousVariable: 'SECRET_PREVIOUS', random }),
  });
  const mails = createAccountMails({ outbox, pages: { reset: url, verify: url, unlock: url }, clock });
  return createPasskeyService({
    passkeys: passkeyCollection(store),
    usedChallenges: usedChallengeCollection(store),
    relyingParty: () => ({ id: 'app.example.test', origins: [ORIGIN], name: 'Example' }),
    throttle: { attempt: (_guess, evaluate) => evaluate() },
    audit: { record: async () => undefined, recordFailure: async () => undefined },
    announce: (change, id, from = FROM) =>
      mails.passkeyChanged({ id, email: 'ada@example.test', emailVerified: true }, change, from),
    ...{ verifyCreation, verifyAssertion, clock, random },
  });
}
