import type { Random } from '../kernel/secrets.js';

/**
 * Names for requests, unique across processes: what an answer carries in `X-Request-Id` and a log line in
 * `reqId`. A client never chooses them.
 */
export function requestIds(random: Random): () => string {
  const process = random.bytes(6).toString('hex');
  let count = 0;
  return () => `req_${process}${(count++).toString(36)}`;
}
