import { withQuery } from '../../core/config/public-url.js';
import { inDays } from '../../core/http/messages.js';
import { DAY } from '../../core/kernel/clock.js';
import type { Effect } from '../../core/ops/commit.js';
import type { Outbox } from '../../shared/email/outbox.js';
import type { InvitationDocument } from './store.js';

/** The mail with an invitation, for its commit. */
export type InvitationMail = ReturnType<typeof createInvitationMail>;

/** @param page the absolute URL of the page that the link opens */
export const createInvitationMail =
  ({ outbox, page }: { outbox: Pick<Outbox, 'mail'>; page(): string }) =>
  (
    { email, hash, createdAt, expiresAt }: InvitationDocument,
    { token, organization, locale }: { token: string; organization: string; locale?: string | undefined },
  ): Effect =>
    outbox.mail({
      key: `organization-invitation:${hash}`,
      to: email,
      template: 'organization-invitation',
      values: {
        email,
        organization,
        link: withQuery(page(), `token=${token}`),
        validFor: inDays(Math.round((expiresAt - createdAt) / DAY)),
      },
      locale,
      security: true,
      expiresAt,
    });
