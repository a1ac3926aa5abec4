import type { Collection, Store } from '../../../core/storage/collection.js';
import type { GrantedApproval, PendingRequest } from '../store.js';

/** What an agent asks a person to approve once (CIBA): beside `details`, the scopes of its one resource. */
export interface ApprovalRequestDocument extends PendingRequest, GrantedApproval {
  agent: string;
  /** The person; absent if nobody is meant who may be asked, which the agent does not learn. */
  sub?: string;
  /** Hash of the client and of the name that it has given for the person. */
  asked: string;
  /** What the agent gets once it is decided (CIBA ping mode), sealed. */
  ping?: string;
  /** What the agent shows beside, such as the number of an order. */
  bindingMessage?: string;
}

/** Prefix of the ids of requests. */
export const APPROVAL_REQUEST = 'apr_';

export type ApprovalRequests = Collection<ApprovalRequestDocument>;

export const approvalRequestCollection = (store: Store): ApprovalRequests =>
  store.collection<ApprovalRequestDocument>('approvalRequests', {
    indexes: [['expiresAt'], ['asked'], ['sub']],
    fields: ['state', 'agent'],
    numbers: ['expiresAt', 'polledAt', 'interval'],
  });
