import type { Resolved } from '../config/options.js';
import type { ServerConfiguration } from './options.js';

/** Listen addresses and errors, for the start and `doctor`. */

/** The address to listen on: loopback by default outside production. */
export function listenAddress({ values, production }: Resolved<ServerConfiguration>): {
  host: string;
  port: number;
} {
  return { host: values.host ?? (production ? '0.0.0.0' : '127.0.0.1'), port: values.port };
}

/** A listen address as the host of a URL. */
export function urlHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return 'localhost';
  return host.includes(':') ? `[${host}]` : host;
}

/** Properties of listen errors. */
export type ListeningError = NodeJS.ErrnoException & { port?: number; address?: string; hostname?: string };

/**
 * Explains a listen error, by a message that begins with the value; `null` for other errors.
 *
 * @param names the variables or flags of the port and the host
 */
export function listeningProblem(
  { code, syscall, port, address, hostname }: ListeningError,
  names: Record<'port' | 'host', string>,
): { about: 'port' | 'host'; message: string; remedy: string } | null {
  if (code === 'EADDRINUSE') {
    const remedy = `Stop the process that listens there, or choose another port with ${names.port}.`;
    return { about: 'port', message: `${port} is in use`, remedy };
  }
  if (code === 'EACCES' && syscall === 'listen') {
    const remedy = `Choose a port above 1023 with ${names.port}.`;
    return { about: 'port', message: `${port} is reserved for the system`, remedy };
  }
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    const remedy = `Choose an address of this machine with ${names.host}, like 127.0.0.1.`;
    return { about: 'host', message: `${address ?? hostname} is not an address of this machine`, remedy };
  }
  return null;
}
