import { isIP } from 'node:net';
import { connect } from 'node:tls';
import { DAY, SECOND } from '../kernel/clock.js';
import type { Finding } from './doctor.js';

/** What visitors meet at the public address: `doctor` connects to it as a browser does. */

const TIMEOUT_MS = 5 * SECOND;

/** Automatic renewals happen earlier. */
const SOON_MS = 14 * DAY;

interface Presented {
  /** Why a browser would refuse it. */
  problem: string | undefined;
  /** Unix time in milliseconds. */
  endsAt: number;
}

/** @throws if there is no TLS connection in time */
function readCertificate({ hostname, port }: URL): Promise<Presented> {
  const host = hostname.replace(/^\[|\]$/g, '');
  return new Promise((resolve, reject) => {
    // The certificate is looked at whether or not it is valid; nothing is sent.
    const socket = connect({
      host,
      port: Number(port || 443),
      rejectUnauthorized: false,
      ...(isIP(host) === 0 && { servername: host }),
    });
    socket.setTimeout(TIMEOUT_MS, () => socket.destroy(new Error('it does not answer in time')));
    socket.once('error', reject);
    socket.once('secureConnect', () => {
      const endsAt = Date.parse(socket.getPeerCertificate().valid_to);
      // Node declares an Error, and gives a code for untrusted chains.
      const { code, message } = Object(socket.authorizationError) as Partial<NodeJS.ErrnoException>;
      const problem = socket.authorized ? undefined : (code ?? message ?? String(socket.authorizationError));
      socket.destroy();
      if (Number.isNaN(endsAt)) reject(new Error('it presents no certificate'));
      else resolve({ problem, endsAt });
    });
  });
}

/** Whether the public address has a certificate that browsers accept, and for how long. @param about its variable */
export async function examineCertificate(
  publicUrl: string | undefined,
  { about, now }: { about: string; now: number },
): Promise<Finding[]> {
  if (!publicUrl?.startsWith('https:')) return [];
  const url = new URL(publicUrl);
  const finding = (level: Finding['level'], message: string, remedy?: string): Finding[] => [
    { level, about, message, ...(remedy && { remedy }) },
  ];
  let presented: Presented;
  try {
    presented = await readCertificate(url);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const remedy = `Check the DNS entry of ${url.hostname}, the firewall and the proxy, unless only this machine cannot reach it.`;
    return finding('warning', `cannot be reached with TLS from this machine: ${code ?? message}`, remedy);
  }
  const { problem, endsAt } = presented;
  const day = new Date(endsAt).toISOString().slice(0, 10);
  const renewal =
    'Renew the certificate: the log of the proxy says why that did not happen by itself (docs/operate/proxy.md).';
  if (endsAt <= now) return finding('warning', `has a certificate that ended on ${day}`, renewal);
  if (problem !== undefined) {
    const remedy = `Give the proxy a certificate for ${url.hostname} by an authority that browsers trust, with its whole chain.`;
    return finding('warning', `has a certificate that browsers refuse: ${problem}`, remedy);
  }
  if (endsAt - now < SOON_MS) return finding('warning', `has a certificate that ends on ${day}`, renewal);
  return finding('ok', `has a valid certificate until ${day}`);
}
