/** The engines by the scheme of their URIs. */
import { realpathSync } from 'node:fs';
import { resolve, sep } from 'node:path';
import type { EngineModule } from './checked-store.js';
import { postgresqlPlace, postgresqlUriProblem } from './postgresql/source.js';

/** An engine, whose module with the driver is loaded on demand. */
export interface Engine {
  readonly name: 'SQLite' | 'PostgreSQL' | 'MongoDB';
  load(): Promise<EngineModule>;
  /** Describes why a URI is invalid, without the URI, which may contain a password; null if it is valid. */
  uriProblem(uri: string): string | null;
  /** Identifies the database: the same for another user, password or option. */
  placeOf(uri: string): string;
}

const SQLITE: Engine = {
  name: 'SQLite',
  load: async () => (await import('./sqlite/store.js')).engine,
  uriProblem(uri) {
    const path = uri.slice('sqlite:'.length);
    if (path === '' || path.endsWith('/') || path.endsWith(sep) || path.includes('\0'))
      return 'a SQLite URI names a file: sqlite:data/app.db';
    // Ambiguous: as a URL, the first folder would be a host; as a path, it would be absolute.
    if (/^\/\/[^/]/.test(path))
      return 'a SQLite URI has no host: sqlite:data/app.db or sqlite:/var/lib/app.db';
    return null;
  },
  placeOf: (uri) => `sqlite:${realPath(resolve(uri.slice('sqlite:'.length)))}`,
};

const POSTGRESQL: Engine = {
  name: 'PostgreSQL',
  load: async () => (await import('./postgresql/store.js')).engine,
  uriProblem: postgresqlUriProblem,
  placeOf: postgresqlPlace,
};

const MONGODB: Engine = {
  name: 'MongoDB',
  load: async () => (await import('./mongodb/store.js')).engine,
  uriProblem: (uri) =>
    /^mongodb(?:\+srv)?:\/\/[^/?#\s]+\/[^/?#\s]+/.test(uri)
      ? null
      : 'a MongoDB URI names its hosts and its database: mongodb://host:27017/name',
  placeOf(uri) {
    const [, scheme = '', hosts = '', database = ''] =
      /^(mongodb[^:]*):\/\/(?:[^/@]*@)?([^/@]*)\/([^?]*)/.exec(uri) ?? [];
    return `${scheme}://${hosts.toLowerCase().split(',').sort().join(',')}/${database}`;
  },
};

/** The engine of a URI; `undefined` if there is none for its scheme. */
export function engineFor(uri: string): Engine | undefined {
  if (uri.startsWith('sqlite:')) return SQLITE;
  if (/^postgres(?:ql)?:/.test(uri)) return POSTGRESQL;
  return uri.startsWith('mongodb') ? MONGODB : undefined;
}

/** The engine of a URI. @throws TypeError if the URI is invalid */
export function engineOf(uri: string): Engine {
  const engine = engineFor(uri);
  const problem = storeUriProblem(uri);
  if (!engine || problem !== null) throw new TypeError(problem ?? '');
  return engine;
}

/** Describes why a store URI is invalid, without the URI, which may contain a password; null if it is valid. */
export function storeUriProblem(uri: string): string | null {
  const engine = engineFor(uri);
  if (engine) return engine.uriProblem(uri);
  const begins = 'begins with sqlite:, postgres://, mongodb:// or mongodb+srv://, like sqlite:data/app.db';
  return `a store URI ${begins}${schemeOf(uri)}`;
}

/** The scheme of a URI, the only part that a message may contain. */
function schemeOf(uri: string): string {
  const [scheme] = /^[a-z][a-z+.-]{0,20}:(?=\/\/)/i.exec(uri) ?? [];
  return scheme === undefined ? '' : `; given: ${scheme}…`;
}

/** The path without symbolic links, also of a file that does not exist yet. */
function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return path;
  }
}
