import type { Resolved } from '../config/options.js';
import type { ServerConfiguration } from './options.js';

/** Where a server listens, and why it cannot. Shared by the start and by `doctor`. */

/** The address to listen at: of this machine only, outside production. */
export function listenAddress({ values, production }: Resolved<ServerConfiguration>): {
  host: string;
  port: number;
} {
  return { host: values.host ?? (production ? '0.0.0.0' : '127.0.0.1'), port: values.port };
}

/** A host name as an address to connect to. */
export function urlHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return 'localhost';
  return host.includes(':') ? `[${host}]` : host;
}

export interface ListeningProblem {
  about: 'port' | 'host';
  /** Begins with the value. */
  message: string;
  remedy: string;
}

/** What errors of the listener tell beside their message. */
export type ListeningError = NodeJS.ErrnoException & { port?: number; address?: string; hostname?: string };

/**
 * Why a server cannot listen; `null` for errors of another kind.
 *
 * @param names what sets the port and the host
 */
export function listeningProblem(
  { code, syscall, port, address, hostname }: ListeningError,
  names: Record<'port' | 'host', string>,
): ListeningProblem | null {
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
