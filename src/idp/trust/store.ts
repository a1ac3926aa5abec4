import type { Store } from '../../core/storage/collection.js';

/** A resource with the scopes of it that are allowed. */
export interface AllowedResource {
  resource: string;
  scopes: string[];
}

/** Another provider, whose identity assertions are exchanged for access tokens. */
export interface TrustedIssuerDocument {
  id: string;
  /** Exactly as in its assertions. */
  issuer: string;
  /** The clients that may present its assertions. */
  clients: string[];
  resources: AllowedResource[];
  createdAt: number;
  updatedAt: number;
}

/** Which person of this provider a subject of a trusted issuer is. */
export interface SubjectLinkDocument {
  /** SHA-256 of issuer and subject. */
  id: string;
  issuer: string;
  subject: string;
  /** The `sub` of the person here. */
  principal: string;
  createdAt: number;
}

/** Another authorization server, for which this provider issues identity assertions. */
export interface AudienceDocument {
  id: string;
  /** Its issuer identifier: `aud` of the assertions. */
  issuer: string;
  /** The clients that get assertions, with the identifiers that they have there. */
  clients: { id: string; idThere: string }[];
  resources: AllowedResource[];
  /** The signature of its assertions; EdDSA by default. */
  algorithm?: 'ES256';
  createdAt: number;
  updatedAt: number;
}

export const trustedIssuerCollection = (store: Store) =>
  store.collection<TrustedIssuerDocument>('trustedIssuers', { unique: ['issuer'] });

export const subjectLinkCollection = (store: Store) =>
  store.collection<SubjectLinkDocument>('subjectLinks', { indexes: [['issuer'], ['principal']] });

export const audienceCollection = (store: Store) =>
  store.collection<AudienceDocument>('audiences', { unique: ['issuer'] });
