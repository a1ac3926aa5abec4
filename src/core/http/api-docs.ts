import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { FastifyReply } from 'fastify';
import { packageFile } from '../kernel/package-files.js';
import { access, type Scope } from './scope.js';

/** A page for developers that shows the OpenAPI document, for servers outside production. */

/** The build copies them from swagger-ui-dist. */
const FOLDER = packageFile('dist/package/swagger-ui');

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

/** Serves `docs` beside `openapi.json`. The files are read with each request, so that they take no memory. */
export async function apiDocsPlugin(scope: Scope, { product }: { product: string }): Promise<void> {
  const options = { config: access('public', { duringMaintenance: true, page: true }) };
  const send = (reply: FastifyReply, type: string, body: string | Buffer) =>
    reply.header('cache-control', 'no-cache').type(type).send(body);

  scope.get('/docs', options, async (_request, reply) => {
    reply.header('content-security-policy', POLICY);
    return send(reply, 'text/html; charset=utf-8', page(product));
  });
  scope.get('/docs/start.js', options, async (_request, reply) =>
    send(reply, 'text/javascript; charset=utf-8', START),
  );
  for (const [file, type] of Object.entries(FILES)) {
    scope.get(`/docs/${file}`, options, async (_request, reply) =>
      send(reply, type, await readFile(join(FOLDER, file))),
    );
  }
}
