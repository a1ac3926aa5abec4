import { mailboxOf, spellingsOf } from '../../core/http/mailboxes.js';
import { type AppError, invalidFields } from '../../core/kernel/errors.js';
import type { Collection, Store, Write } from '../../core/storage/collection.js';
import { provisioningErrors } from './errors.js';
import { canonicalForm, canonicalHandle } from './handles.js';
import type { PrincipalCollection, PrincipalDocument } from './store.js';

/**
 * The names of principals: a handle, and the e-mail address that a person may have beside it. No handle is the address of another
 * principal, in either spelling of its domain.
 */

/**
 * Reserves an address for one principal, which has it as handle or beside the handle, or for the agent that presents itself with
 * the metadata there. Handles of earlier versions have none.
 */
interface AddressDocument {
  /** In one spelling of its domain. */
  id: string;
  sub: string;
}

/** The names that a principal has or is to have. */
type Names = Pick<PrincipalDocument, 'handle' | 'email' | 'clientMetadata'>;

export type Addresses = ReturnType<typeof createAddresses>;

export const addressCollection = (store: Store): Collection<AddressDocument> =>
  store.collection<AddressDocument>('principal_addresses', { fields: ['sub'] });

/** The form in which an address beside a handle is stored. @throws VALIDATION_ERROR */
function canonicalAddress(text: string): string {
  const mailbox = mailboxOf(canonicalForm(text));
  if (mailbox !== undefined) return mailbox;
  throw invalidFields({ path: 'email', message: 'must be an e-mail address like ada@example.com' });
}

/** The names of a new principal in the form in which they are stored. @throws VALIDATION_ERROR */
export function namesOf({ handle, email }: { handle: string; email?: string | undefined }): {
  handle: string;
  email?: string;
} {
  const canonical = canonicalHandle(handle);
  const address = email === undefined || email === '' ? undefined : canonicalAddress(email);
  const isHandle = address === undefined || address === mailboxOf(canonical);
  return { handle: canonical, ...(!isHandle && { email: address }) };
}

/** An address in both spellings of its domain, which may be the same. */
function spelledOut(email: string | undefined): string[] {
  if (email === undefined) return [];
  const at = email.lastIndexOf('@') + 1;
  return [...new Set(spellingsOf(email.slice(at)))].map((domain) => email.slice(0, at) + domain);
}

const besideHandle = ({ email, clientMetadata }: Omit<Names, 'handle'>): string[] => [
  ...spelledOut(email),
  ...[clientMetadata ?? []].flat(),
];

/** What is reserved: a handle that is an address, and the addresses beside it. */
const reservedBy = (names: Names): string[] => [
  ...(mailboxOf(names.handle) === undefined ? [] : [names.handle]),
  ...besideHandle(names),
];

export function createAddresses(
  principals: Pick<PrincipalCollection, 'findOne'>,
  addresses: Collection<AddressDocument>,
) {
  const isTaken = async (name: string, sub: string): Promise<boolean> => {
    const [principal, address] = await Promise.all([
      principals.findOne({ handle: name }),
      addresses.findOne({ id: name }),
    ]);
    return (principal?.id ?? sub) !== sub || (address?.sub ?? sub) !== sub;
  };

  return {
    /** What reserves the names of a new principal, for the commit that inserts it. */
    claiming: ({ id: sub, ...names }: Names & { id: string }): Write[] =>
      reservedBy(names).map((id) => addresses.inserting({ id, sub })),

    /** What reserves other addresses beside the handle instead, for the commit that changes them. */
    moving(sub: string, before: Omit<Names, 'handle'>, after: Omit<Names, 'handle'>): Write[] {
      const [from, to] = [besideHandle(before), besideHandle(after)];
      return [
        ...from.filter((id) => !to.includes(id)).map((id) => addresses.deleting({ id, sub })),
        ...to.filter((id) => !from.includes(id)).map((id) => addresses.inserting({ id, sub })),
      ];
    },

    /** The `sub` of the agent for which the address of client metadata is reserved. */
    ofMetadata: async (uri: string): Promise<string | undefined> =>
      (await addresses.findOne({ id: uri }))?.sub,

    /** What frees the names of a principal that never signed in, for the commit that deletes it. */
    async releasing(sub: string, names: Names): Promise<Write[]> {
      const reserved = await Promise.all(reservedBy(names).map((id) => addresses.findOne({ id, sub })));
      return reserved.flatMap((found) => (found ? [addresses.deleting({ id: found.id, sub })] : []));
    },

    /** The error if another principal has one of these names, else `null`. Concurrent commits fail by a unique value instead. */
    async conflict(names: Names, sub: string): Promise<AppError | null> {
      if (await isTaken(names.handle, sub)) return provisioningErrors.handle_taken();
      for (const spelling of spelledOut(names.email))
        if (await isTaken(spelling, sub)) return provisioningErrors.email_taken();
      const { clientMetadata } = names;
      return clientMetadata !== undefined && (await isTaken(clientMetadata, sub)) ? metadataTaken() : null;
    },

    /**
     * The handle of whom a text names by either name, in canonical form; of nobody, the text itself. The work depends on the form of the
     * text only.
     */
    async accountOf(text: string): Promise<string> {
      const name = canonicalForm(text);
      const email = mailboxOf(name);
      return (email && (await principals.findOne({ email }))?.handle) ?? name;
    },
  };
}

const metadataTaken = () => invalidFields({ path: 'client_metadata', message: 'is that of another agent' });
