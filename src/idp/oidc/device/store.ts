import type { Collection, Store } from '../../../core/storage/collection.js';
import type { PendingRequest } from '../store.js';

/** A sign-in that was requested by a device and is decided in a browser (RFC 8628). */
export interface DeviceRequestDocument extends PendingRequest {
  /** HMAC of the user code, which is short enough to be found from a plain hash. */
  userCodeHash: string;
  /** The address block of the device and its operating system, as far as they are known. */
  place?: string;
  system?: string;
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
