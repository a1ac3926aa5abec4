import { createAccountMails } from '../../src/auth/mails.js';
import { createMailContent } from '../../src/email/content.js';
import { createOutbox } from '../../src/email/outbox.js';
import { mailCollection } from '../../src/email/store.js';
import { createMessages } from '../../src/http/messages.js';
import { systemClock as clock } from '../../src/kernel/clock.js';
import { systemRandom as random } from '../../src/kernel/secrets.js';
import { verifyAssertion, verifyCreation } from '../../src/passkeys/ceremony.js';
import { createPasskeyService, type PasskeyService } from '../../src/passkeys/service.js';
import { passkeyCollection, usedChallengeCollection } from '../../src/passkeys/store.js';
import type { Store } from '../../src/storage/collection.js';

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
