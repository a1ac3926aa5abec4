import type { Static } from 'typebox';
import { Type } from 'typebox';
import { defineOptions, option, parseList, type Resolved, resolveOptions } from '../config/options.js';
import { formatValue } from '../config/validation-messages.js';
import { coverAllPublicAddresses, isNetwork } from '../kernel/networks.js';
import { type Random, systemRandom } from '../kernel/secrets.js';
import type { Product } from '../ops/health.js';
import { invalidStoreUri } from '../storage/open.js';
import { withSchema } from '../storage/postgresql/source.js';

/** Options of the servers and of the stores. In a host, the host configures its own server. */

export const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

/** The environment variable of a product. */
export const variableOf = (product: Product, name: string): string =>
  product === 'idp' ? `IDP_${name}` : name;

function serverSchema(product: Product, defaultPort: number) {
  return defineOptions({
    host: option(Type.Optional(Type.String({ minLength: 1 })), {
      env: variableOf(product, 'HOST'),
      doc: 'Address to listen on.',
      shown: '127.0.0.1, in production 0.0.0.0',
    }),
    port: option(Type.Integer({ minimum: 0, maximum: 65_535, default: defaultPort }), {
      env: variableOf(product, 'PORT'),
      ...(product === 'idp' && { fallbackEnv: 'PORT' }),
      doc: 'Port to listen on; 0 selects any free port.',
    }),
    logLevel: option(Type.Enum(LEVELS, { default: 'info' }), {
      env: 'LOG_LEVEL',
      doc: `Log level: ${LEVELS.join(', ')}.`,
    }),
    trustProxy: option(Type.Union([Type.Literal(false), Type.Array(Type.String())], { default: false }), {
      env: variableOf(product, 'TRUST_PROXY'),
      doc: 'IP addresses or CIDR ranges, separated by commas, of the proxies whose X-Forwarded-For header is trusted: docs/operate/proxy.md.',
      parse: (text) => (text === 'false' ? false : parseList(text)),
      check: trustProblem,
    }),
    maxConnections: option(Type.Integer({ minimum: 16, maximum: 1_000_000, default: 16_384 }), {
      env: variableOf(product, 'MAX_CONNECTIONS'),
      doc: 'Maximum number of open connections, at most the file descriptor limit (`ulimit -n`) minus 256. Beyond it, the connection that has been idle longest is closed.',
    }),
    maxConnectionsPerAddress: option(Type.Integer({ minimum: 4, maximum: 1_000_000, default: 1024 }), {
      env: variableOf(product, 'MAX_CONNECTIONS_PER_ADDRESS'),
      doc: 'Maximum number of open connections per address (IPv6: per /64); trusted proxies are exempt.',
    }),
  });
}

function trustProblem(proxies: false | string[]): string | undefined {
  if (proxies === false) return undefined;
  const wrong = proxies.find((proxy) => !isNetwork(proxy));
  if (wrong !== undefined) {
    return `must list IP addresses or CIDR ranges, like 10.0.0.7,10.0.1.0/24; given: ${formatValue(wrong)}. Numbers and true are rejected: they would trust every client.`;
  }
  return coverAllPublicAddresses(proxies)
    ? 'must list your proxies only, like 10.0.0.7,10.0.1.0/24; given: networks that together cover every address, so that every client could choose the address it is counted by.'
    : undefined;
}

export type ServerConfiguration = Static<ReturnType<typeof serverSchema>>;

/** Options of a server that have no environment variable. */
export interface ServerRuntimeOptions {
  env?: Record<string, string | undefined> | false;
  random?: Random;
  /** Refused: it is an option of a plugin. */
  openapi?: boolean;
}

type Values = Required<ServerConfiguration>;

/** The options of a server. They take precedence over the environment. */
export interface ServerOptions {
  /** Address to listen on. Variable: `HOST` or `IDP_HOST`. Default: 127.0.0.1, in production 0.0.0.0. */
  host?: Values['host'];
  /** Port to listen on; 0 selects any free port. Variable: `PORT` or `IDP_PORT`. Default: 3000 or 8080. */
  port?: Values['port'];
  /** Log level. Variable: `LOG_LEVEL`. Default: info. */
  logLevel?: Values['logLevel'];
  /**
   * IP addresses or CIDR ranges of the proxies whose X-Forwarded-For header is trusted. Variable: `TRUST_PROXY` or
   * `IDP_TRUST_PROXY`. Default: none.
   */
  trustProxy?: Values['trustProxy'];
  /** Maximum number of open connections. Variable: `MAX_CONNECTIONS` or `IDP_MAX_CONNECTIONS`. Default: 16384. */
  maxConnections?: Values['maxConnections'];
  /**
   * Maximum number of open connections per address (IPv6: per /64); trusted proxies are exempt. Variable:
   * `MAX_CONNECTIONS_PER_ADDRESS` or `IDP_MAX_CONNECTIONS_PER_ADDRESS`. Default: 1024.
   */
  maxConnectionsPerAddress?: Values['maxConnectionsPerAddress'];
}

/** Separates the options of a server from those of its plugin. */
export function splitOptions<O extends ServerOptions>(
  schema: ReturnType<typeof serverSchema>,
  options: O,
): [ServerOptions, Omit<O, keyof ServerOptions>] {
  const isServerOption = ([name]: [string, unknown]) => Object.hasOwn(schema.properties, name);
  const entries = Object.entries(options);
  const rest = entries.filter((entry) => !isServerOption(entry));
  return [
    Object.fromEntries(entries.filter(isServerOption)),
    Object.fromEntries(rest) as Omit<O, keyof ServerOptions>,
  ];
}

/** @throws ConfigurationError naming every problem */
export function resolveServer(
  program: string,
  schema: ReturnType<typeof serverSchema>,
  given: ServerOptions,
  { env, random = systemRandom, openapi }: ServerRuntimeOptions,
): Resolved<ServerConfiguration> {
  return resolveOptions(schema, { program, given: { ...given }, env, random }, (_values, report) => {
    if (openapi)
      report.refuse("'openapi' is an option of a plugin in a host with @fastify/swagger, not of a server.");
  });
}

export const saasServerSchema = serverSchema('saas-backend', 3000);
export const idpServerSchema = serverSchema('idp', 8080);

const storeOption = (product: Product) =>
  option(Type.String(), {
    env: variableOf(product, 'DATABASE_URI'),
    doc: 'Database URI: sqlite:<path>, sqlite::memory:, postgres://<host>/<name>, mongodb://<hosts>/<name> or mongodb+srv://<host>/<name>.',
    secret: true,
    development: `sqlite:./data/${product}.db`,
    required: 'production',
    check: invalidStoreUri,
    complete: (uri) => storeUriOf(product, uri),
  });

/** The store option of each product. */
export const storeOptions = { 'saas-backend': storeOption('saas-backend'), idp: storeOption('idp') };

/** Both products have collections of the same names: in PostgreSQL, each has a schema of its own unless the URI names one. */
export function storeUriOf(product: Product, uri: string): string {
  return withSchema(uri, product === 'idp' ? 'idp' : 'saas');
}
