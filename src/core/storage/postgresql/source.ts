/** The URI of a PostgreSQL store, with its schema. */
const URI = /^postgres(?:ql)?:\/\/[^/?#\s]*\/[^/?#\s]+/;

/** What the URI may contain beside the parameters of the driver: the schema, and the largest number of connections. */
const SCHEMA = 'schema';
const CONNECTIONS = 'connection_limit';
const DEFAULT_SCHEMA = 'public';
const DEFAULT_CONNECTIONS = '10';
const MAX_CONNECTIONS = 1000;

/** Describes why a URI is invalid, without the URI; null if it is valid. */
export function postgresqlUriProblem(uri: string): string | null {
  const parsed = URI.test(uri) && URL.canParse(uri) ? new URL(uri) : null;
  if (!parsed || (parsed.hostname === '' && !parsed.searchParams.has('host')))
    return 'a PostgreSQL URI names its host and its database: postgres://host:5432/name';
  const schema = parsed.searchParams.get(SCHEMA);
  if (schema !== null && !isSchemaName(schema)) return `its schema ${SCHEMA_RULE}`;
  const connections = parsed.searchParams.get(CONNECTIONS);
  if (connections !== null && !(/^\d{1,4}$/.test(connections) && isCount(Number(connections))))
    return `its connection_limit is a number from 1 to ${MAX_CONNECTIONS}`;
  return null;
}

export const isSchemaName = (name: string): boolean => /^[a-z_][a-z0-9_]{0,62}$/.test(name);
export const SCHEMA_RULE = 'consists of lower-case letters, digits and _, and does not begin with a digit';

const isCount = (count: number): boolean => count >= 1 && count <= MAX_CONNECTIONS;

/** The server, the database and the schema of a valid URI. */
export function postgresqlPlace(uri: string): string {
  const { hostname, port, pathname, searchParams } = new URL(uri);
  const [host, service] = [searchParams.get('host') ?? hostname, searchParams.get('port') ?? port];
  return `postgres://${host}:${service || 5432}${pathname}/${searchParams.get(SCHEMA) ?? DEFAULT_SCHEMA}`;
}

/** Adds the schema to a PostgreSQL URI that names none. Others remain as they are. */
export function withSchema(uri: string, schema: string): string {
  if (postgresqlUriProblem(uri) !== null || new URL(uri).searchParams.has(SCHEMA)) return uri;
  return `${uri}${uri.includes('?') ? '&' : '?'}${SCHEMA}=${schema}`;
}

/** The schema of a valid URI, and how many connections it allows. */
export function settingsOf(uri: string): { schema: string; connections: number } {
  const { searchParams } = new URL(uri);
  return {
    schema: searchParams.get(SCHEMA) ?? DEFAULT_SCHEMA,
    connections: Number(searchParams.get(CONNECTIONS) ?? DEFAULT_CONNECTIONS),
  };
}
