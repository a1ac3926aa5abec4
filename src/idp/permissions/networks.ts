import { isIP } from 'node:net';

/** A network, or one address, in CIDR notation; `null` for other text. */
export function readNetwork(text: string): string | null {
  const [, address = '', length] = /^([\da-f.:]+)(?:\/(\d{1,3}))?$/i.exec(text) ?? [];
  const family = isIP(address);
  const bits = family === 4 ? 32 : 128;
  if (family === 0 || Number(length ?? bits) > bits) return null;
  return `${address}/${length ?? bits}`;
}
