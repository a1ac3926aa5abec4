/** better-auth with its MongoDB adapter: `better-auth-server.js <port> <folder of its installation> <uri>`. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [port = '', folder = '', uri = ''] = process.argv.slice(2);
const { resolve } = createRequire(join(folder, 'package.json'));
const load = (name: string) => import(pathToFileURL(resolve(name)).href);
const { betterAuth } = await load('better-auth');
const { mongodbAdapter } = await load('better-auth/adapters/mongodb');
const { MongoClient } = await load('mongodb');

const client = await new MongoClient(uri).connect();
const baseURL = `http://127.0.0.1:${port}`;
const auth: { handler(request: Request): Promise<Response> } = betterAuth({
  database: mongodbAdapter(client.db()),
  secret: 'secret of a local server in a benchmark',
  baseURL,
  emailAndPassword: { enabled: true },
  rateLimit: { enabled: false },
  telemetry: { enabled: false },
});

/** Its own handler for Node.js sends responses in chunks, which the load generator does not read. */
async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const answered = await auth.handler(
    new Request(`${baseURL}${request.url}`, {
      method: request.method as string,
      headers: request.headers as Record<string, string>,
      ...(chunks.length > 0 && { body: Buffer.concat(chunks) }),
    }),
  );
  const body = await answered.text();
  response.setHeaders(answered.headers);
  response.writeHead(answered.status, { 'content-length': Buffer.byteLength(body) }).end(body);
}

createServer((request, response) => {
  answer(request, response).catch((error) => response.writeHead(500).end(String(error)));
}).listen(Number(port), '127.0.0.1');
