import { sha256 } from '../../core/kernel/secrets.js';
import type { Store } from '../../core/storage/collection.js';
import {
  type AudienceDocument,
  audienceCollection,
  subjectLinkCollection,
  type TrustedIssuerDocument,
  trustedIssuerCollection,
} from './store.js';

/** Reads which other providers are trusted. Only commands on the host change it (`administration.ts`). */
export type TrustService = ReturnType<typeof createTrustService>;

/** Longest identifier of another provider. */
export const MAX_ISSUER_LENGTH = 512;

/** Whether the text may be an issuer identifier. Other text is never looked up, because a store may be unable to represent it. */
export const isIssuerUri = (text: string): boolean =>
  text.length <= MAX_ISSUER_LENGTH && /^https?:\/\/[\w.~:@!$&'()*+,;=/%[\]-]+$/.test(text);

export const linkId = (issuer: string, subject: string): string => sha256(JSON.stringify([issuer, subject]));

export function createTrustService(store: Store) {
  const issuers = trustedIssuerCollection(store);
  const links = subjectLinkCollection(store);
  const audiences = audienceCollection(store);
  return {
    /** The trusted issuer with exactly this identifier. */
    findIssuer: async (issuer: string): Promise<TrustedIssuerDocument | null> =>
      isIssuerUri(issuer) ? issuers.findOne({ issuer }) : null,
    /** The `sub` of the person here that a subject of an issuer is linked to. */
    async findSubject(issuer: string, subject: string): Promise<string | null> {
      const link = await links.findOne({ id: linkId(issuer, subject) });
      return link?.principal ?? null;
    },
    /** The authorization server with exactly this identifier. */
    findAudience: async (issuer: string): Promise<AudienceDocument | null> =>
      isIssuerUri(issuer) ? audiences.findOne({ issuer }) : null,
  };
}
