import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import type { FastifyReply } from 'fastify';
import { access, type FastifyTypebox } from './routes.js';

/** A page for developers that shows the OpenAPI document, for servers outside production. */

const FILES = {
  'swagger-ui.css': 'text/css; charset=utf-8',
  'swagger-ui-bundle.js': 'text/javascript; charset=utf-8',
} as const;

const START =
  "SwaggerUIBundle({ url: 'openapi.json', dom_id: '#api', deepLinking: true, validatorUrl: 'none' });";

const page = (product: string) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>API of ${product}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<noscript><p>This page requires JavaScript. Its source is <a href="openapi.json">openapi.json</a>.</p></noscript>
<main id="api"></main>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
`;

/** Swagger UI sets style attributes, and draws icons from data URLs. Its requests are limited to this origin. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** The files of Swagger UI in the optional package @fastify/swagger-ui; `undefined` if it is not installed. */
function swaggerUiFolder(): string | undefined {
  try {
    return dirname(createRequire(import.meta.url).resolve('@fastify/swagger-ui/static/swagger-ui.css'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}

/**
 * Serves `docs` beside `openapi.json` if @fastify/swagger-ui is installed. The files are read with each request, so that they
 * take no memory.
 */
export async function apiDocsPlugin(
  fastify: FastifyTypebox,
  { product }: { product: string },
): Promise<void> {
  const folder = swaggerUiFolder();
  if (folder === undefined) return;
  const options = { config: access('public', { duringMaintenance: true, page: true }) };
  const send = (reply: FastifyReply, type: string, body: string | Buffer) =>
    reply.header('cache-control', 'no-cache').type(type).send(body);

  fastify.get('/docs', options, async (_request, reply) => {
    reply.header('content-security-policy', POLICY);
    return send(reply, 'text/html; charset=utf-8', page(product));
  });
  fastify.get('/docs/start.js', options, async (_request, reply) =>
    send(reply, 'text/javascript; charset=utf-8', START),
  );
  for (const [file, type] of Object.entries(FILES)) {
    fastify.get(`/docs/${file}`, options, async (_request, reply) =>
      send(reply, type, await readFile(join(folder, file))),
    );
  }
}
