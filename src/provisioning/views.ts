import { toTimestamp } from '../http/schemas.js';
import type { Page } from '../storage/collection.js';
import type { ClientDocument, PrincipalDocument } from './store.js';

/** Principals and clients as they are shown: to whoever makes them, and to the operator. Never a hash. */

export function principalView({ id, handle, kind, name, createdAt }: PrincipalDocument) {
  return { sub: id, handle, kind, name: name ?? '', created_at: toTimestamp(createdAt) };
}

export function operatorView(principal: PrincipalDocument) {
  const { state, linkExpiresAt, updatedAt } = principal;
  return {
    ...principalView(principal),
    state,
    updated_at: toTimestamp(updatedAt),
    ...(state === 'invited' &&
      linkExpiresAt !== undefined && { invite_expires_at: toTimestamp(linkExpiresAt) }),
  };
}

export function principalPage({ items, next }: Page<PrincipalDocument>) {
  return { principals: items.map(operatorView), next };
}

export function clientView(client: ClientDocument) {
  return {
    client_id: client.id,
    client_name: client.name,
    redirect_uris: client.redirectUris,
    post_logout_redirect_uris: client.postLogoutRedirectUris,
    public: client.secretHash === undefined,
    principal_kinds: client.principalKinds,
    trusted: client.trusted === true,
    created_at: toTimestamp(client.createdAt),
  };
}
