import type { Collection, Store } from '../../../core/storage/collection.js';
import type { ResourceScopes } from '../resources.js';

/** A sign-in that was requested by a device and is decided in a browser (RFC 8628). */
export interface DeviceRequestDocument {
  /** `dev_…`; the grant that follows an approval has the same digits. */
  id: string;
  /** HMAC of the user code, which is short enough to be found from a plain hash. */
  userCodeHash: string;
  /** SHA-256 of the device code. */
  codeHash: string;
  clientId: string;
  /** The scopes of the provider itself, separated by spaces. */
  scope: string;
  resources?: ResourceScopes[];
  /** The address block of the device and its operating system, as far as they are known. */
  place?: string;
  system?: string;
  createdAt: number;
  expiresAt: number;
  /** Seconds between two polls. */
  interval: number;
  polledAt?: number;
  state: 'pending' | 'approved' | 'denied';
  /** Present when it is approved. */
  approval?: Approval;
}

/** Who has approved a request, and in which session. */
export interface Approval {
  sub: string;
  epoch?: number;
  sid: string;
  amr?: string[];
  authTime: number;
  /** `revocations` of the consent. */
  revocations?: number;
  approvedAt: number;
}

/** Prefix of the ids of requests. */
export const DEVICE_REQUEST = 'dev_';

export type DeviceRequests = Collection<DeviceRequestDocument>;

export const deviceRequestCollection = (store: Store): DeviceRequests =>
  store.collection<DeviceRequestDocument>('deviceRequests', {
    unique: ['userCodeHash'],
    indexes: [['expiresAt']],
    fields: ['state'],
    numbers: ['expiresAt', 'polledAt', 'interval'],
  });
