import { SECOND } from '../../core/kernel/clock.js';
import { createOutbound } from '../../core/outbound/request.js';
import { DeliveryError, HEADERS, type Transport, withoutSecrets } from './transport.js';

/** For hosts that block the ports of SMTP. */
export interface MailApiSettings {
  /** Where mails are posted, in the format of Resend. */
  url: string;
  /** Sent as a bearer token. */
  apiKey: string;
}

/** The beginning of a refusal, for the operator. */
const MAX_ANSWER_BYTES = 2048;

/**
 * Posts each mail as JSON: https://resend.com/docs/api-reference/emails/send-email. The API discards a second request with the
 * same `Idempotency-Key`.
 *
 * @param timeoutMs limits each delivery
 */
export function createHttpTransport({ url, apiKey }: MailApiSettings, timeoutMs = 10 * SECOND): Transport {
  // The operator has chosen the address.
  const request = createOutbound({ reach: 'private', timeoutMs });
  return {
    async send({ from, to, replyTo, subject, text, html, messageId }, signal) {
      const mail = {
        from: `"${from.name.replace(/["\\]/g, '\\$&')}" <${from.address}>`,
        to: [to],
        ...(replyTo !== undefined && { reply_to: replyTo }),
        ...{ subject, text, html, headers: HEADERS },
      };
      const answer = await request(url, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${apiKey}`,
          'content-type': 'application/json',
          'idempotency-key': messageId,
        },
        body: JSON.stringify(mail),
        maxBytes: MAX_ANSWER_BYTES,
        isExcerpt: true,
        signal,
      }).catch((error: NodeJS.ErrnoException) => {
        throw new DeliveryError(`the mail API did not respond: ${error.code ?? error.name}`, false);
      });
      const { status, body } = answer;
      if (status >= 200 && status < 300) return 'sent';
      throw new DeliveryError(`the mail API answered ${status}: ${withoutSecrets(body)}`, false);
    },
    async close() {},
  };
}
