import { readFile } from 'node:fs/promises';
import type { RouteOptions } from 'fastify';
import { packageFile } from '../kernel/package-files.js';
import { access, type FastifyTypebox } from './routes.js';

/** The OpenAPI document of a product, which the package contains for an installation with every feature. */

type Operation = Record<string, unknown> & { operationId: string; security: object[] };

export interface OpenApiDocument {
  servers: { url: string }[];
  tags: { name: string }[];
  paths: Record<string, Record<string, Operation>>;
  components: Record<string, Record<string, unknown>>;
}

export type DocumentedProduct = 'saas-backend' | 'idp';

/** Where an installation has what the document has at `path`. */
export interface Mount {
  path: string;
  /** Where its routes are registered. */
  routesAt: string;
  /** Where clients reach them, if that differs: a host's middleware chain may have changed it. */
  reachedAt?: () => string;
}

export interface OpenApiPluginOptions {
  product: DocumentedProduct;
  /** The address that paths continue. */
  serverUrl(): string;
  /** The first mount that a path of the document begins with applies; paths without one are left out. */
  mounts: readonly Mount[];
  /** Security schemes that the configuration does not accept. */
  unusedSchemes?: readonly string[];
  /** What the host has declared: replaces the schemas with these titles. Undefined: there is none, and the property is left out. */
  declaredSchemas?: Readonly<Record<string, object | undefined>>;
}

export async function readDocument(product: DocumentedProduct): Promise<OpenApiDocument> {
  return JSON.parse(await readFile(packageFile(`docs/openapi/${product}.json`), 'utf8'));
}

/** Serves the document. It is read at the first request, so that it costs neither time at the start nor memory before. */
export async function openApiPlugin(fastify: FastifyTypebox, options: OpenApiPluginOptions): Promise<void> {
  // In development, the address is known only once the server listens.
  let known: { address: string; text: string } | undefined;

  fastify.get(
    '/openapi.json',
    { config: access('public', { duringMaintenance: true }) },
    async (_request, reply) => {
      const address = [options.serverUrl(), ...options.mounts.map(({ reachedAt }) => reachedAt?.())].join(
        ' ',
      );
      if (known?.address !== address) {
        const document = adapt(await readDocument(options.product), fastify, options);
        known = { address, text: JSON.stringify(document, asDeclared(options.declaredSchemas ?? {})) };
      }
      return reply.type('application/json; charset=utf-8').send(known.text);
    },
  );
}

/** A function for `JSON.stringify`. */
const asDeclared = (schemas: Readonly<Record<string, object | undefined>>) => (_: string, part: unknown) => {
  const { title, description } = Object(part) as { title?: unknown; description?: unknown };
  if (typeof title !== 'string' || !Object.hasOwn(schemas, title) || !isFreeForm(part)) return part;
  const declared = schemas[title];
  return declared && { title, description, ...declared };
};

/** Unlike what replaces it, and unlike a field with such a title. */
const isFreeForm = (schema: unknown) =>
  (schema as { additionalProperties?: unknown }).additionalProperties === true;

/** With the operations that exist, at their addresses. */
function adapt(
  document: OpenApiDocument,
  fastify: FastifyTypebox,
  options: OpenApiPluginOptions,
): OpenApiDocument {
  const paths: OpenApiDocument['paths'] = {};
  const unused = options.unusedSchemes ?? [];
  for (const [path, operations] of Object.entries(document.paths)) {
    const mount = options.mounts.find((each) => isBelow(path, each.path));
    if (!mount) continue;
    const rest = path.slice(mount.path.length);
    const url = mount.routesAt + rest.replace(/\{(\w+)\}/g, ':$1');
    const existing = Object.entries(operations).filter(([method]) =>
      fastify.hasRoute({ method: method.toUpperCase() as 'GET', url }),
    );
    const accepted = existing.map(([method, operation]) => {
      const security = operation.security.filter((scheme) => !unused.some((name) => name in scheme));
      return [method, { ...operation, security }];
    });
    if (accepted.length > 0)
      paths[(mount.reachedAt?.() ?? mount.routesAt) + rest] = Object.fromEntries(accepted);
  }
  const used = new Set(
    Object.values(paths).flatMap((operations) =>
      Object.values(operations).flatMap(({ tags }) => tags as string[]),
    ),
  );
  return {
    ...document,
    servers: [{ url: options.serverUrl() }],
    tags: document.tags.filter(({ name }) => used.has(name)),
    paths,
    components: usedComponents(document.components, paths, unused),
  };
}

const isBelow = (path: string, mount: string) => path === mount || path.startsWith(`${mount}/`);

/** The components that the paths refer to, directly or not. */
function usedComponents(
  components: OpenApiDocument['components'],
  paths: OpenApiDocument['paths'],
  unusedSchemes: readonly string[],
) {
  const used = new Set<string>();
  const follow = (value: unknown): void => {
    for (const [, kind = '', name = ''] of JSON.stringify(value).matchAll(
      /"#\/components\/(\w+)\/([^"]+)"/g,
    )) {
      const key = `${kind}/${name}`;
      if (used.has(key)) continue;
      used.add(key);
      follow(components[kind]?.[name] ?? null);
    }
  };
  follow(paths);
  const kept = Object.entries(components).map(([kind, entries]) => [
    kind,
    Object.fromEntries(
      Object.entries(entries).filter(([name]) =>
        kind === 'securitySchemes' ? !unusedSchemes.includes(name) : used.has(`${kind}/${name}`),
      ),
    ),
  ]);
  return Object.fromEntries(kept);
}

/** What a route has in the description of a host's @fastify/swagger. */
export type DescribeRoute = (route: RouteOptions) => object | undefined;

/**
 * Describes routes for a host's @fastify/swagger; pages have no description.
 *
 * @param documentPathOf the path of a route in the document
 */
export async function createRouteDescriptions(
  product: DocumentedProduct,
  documentPathOf: (url: string) => string,
): Promise<DescribeRoute> {
  const { paths } = await readDocument(product);
  return ({ method, url }) => {
    const path = documentPathOf(url).replace(/:(\w+)/g, '{$1}');
    const [verb = ''] = [method].flat();
    const operation = paths[path]?.[verb.toLowerCase()];
    if (!operation) return undefined;
    // Without `security`: @fastify/swagger throws for a scheme that the host does not define.
    const { operationId, summary, description, tags } = operation;
    return { operationId, summary, ...(description !== undefined && { description }), tags };
  };
}
