import basicAuth from '@fastify/basic-auth';
import cookie from '@fastify/cookie';
import cors from '@fastify/cors';
import formbody from '@fastify/formbody';
import jwt from '@fastify/jwt';
import swagger from '@fastify/swagger';
import fastify, { type FastifyInstance, type InjectOptions } from 'fastify';
import {
  jsonSchemaTransform,
  serializerCompiler,
  validatorCompiler,
  type ZodTypeProvider,
} from 'fastify-type-provider-zod';
import type { Test } from 'tap';
import { z } from 'zod';
import type { IdentityProviderOptions, SaasBackendOptions } from '../../src/index.js';
import { basic, testOptions } from './app.js';
import { fakeClock } from './clock.js';
import { idpOptions } from './idp.js';
import { countedRandom } from './random.js';
import { temporaryFolder } from './tmp.js';

/** Host applications of other developers that register our plugins. */

export interface HostOptions {
  /** Collects its log. */
  lines?: string[];
  /** Whether it uses the compilers of zod, or its own and a reply serializer. */
  zod?: boolean;
  /** Registers plugins before the host's own. */
  first?: (host: FastifyInstance) => Promise<void>;
  /** Registers plugins after the host's own. */
  last?: (host: FastifyInstance) => Promise<void>;
}

/** Credentials of a user of the host. */
export const LOGIN = { cookie: 'login=host' };

/** An application that sets everything configurable on the root of a Fastify application. */
export async function createHost(
  t: Test,
  { lines = [], zod = false, first, last }: HostOptions = {},
): Promise<FastifyInstance> {
  const host = fastify({
    logger: { level: 'trace', stream: { write: (line: string) => void lines.push(line) } },
    genReqId: () => 'host-request',
  });
  t.teardown(() => host.close());
  const openapi = { info: { title: 'host', version: '1' } };
  await host.register(swagger, { openapi, ...(zod && { transform: jsonSchemaTransform }) });
  await first?.(host);
  await host.register(jwt, { secret: 'a secret of the host' });
  await host.register(basicAuth, {
    authenticate: { realm: 'host' },
    validate: async (name: string) => {
      if (name !== 'host') throw new Error('not the host');
    },
  });
  await host.register(cors, { origin: 'https://host.example' });
  await host.register(cookie);
  await host.register(formbody);
  host.addSchema({ $id: 'User', type: 'object', properties: { nick: { type: 'string' } } });
  host.removeContentTypeParser('application/json');
  host.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, body, done) =>
    done(null, { parsedByHost: body }),
  );
  host.setErrorHandler((error: Error, _request, reply) =>
    reply.code(418).type('text/plain').send(`host error: ${error.message}`),
  );
  host.setNotFoundHandler((request, reply) =>
    reply.code(404).type('text/plain').send(`host 404: ${request.url}`),
  );
  demandLogin(host);
  host.addHook('onSend', async (_request, reply) => void reply.setCookie('seen', 'by host'));
  if (zod) takeZod(host);
  else takeOwn(host);

  host.get('/openapi.json', async (_request, reply) =>
    reply.type('application/json').send(JSON.stringify(host.swagger())),
  );
  host.get('/sign', async () => host.jwt.sign({ host: true, iat: 0 }));
  host.get('/verify', { onRequest: (request) => request.jwtVerify() }, async (request) => request.user);
  host.get('/basic', { onRequest: host.basicAuth }, async () => 'basic');
  host.get('/user', async (request) => ({ saas: typeof request.saas }));
  host.get('/throws', async () => {
    throw new Error('of the host');
  });
  await last?.(host);
  return host;
}

/** Applies to every route without an access level of its own. */
function demandLogin(host: FastifyInstance): void {
  host.addHook('onRequest', async (request, reply) => {
    reply.header('x-host', 'yes');
    const route = request.routeOptions.config as { access?: string } | undefined;
    if (route?.access === undefined && request.cookies['login'] !== 'host') throw new Error('log in');
  });
}

function takeOwn(host: FastifyInstance): void {
  host.setValidatorCompiler(() => (data) => ({ value: { validatedByHost: data } }));
  host.setSerializerCompiler(() => (data) => JSON.stringify({ serializedByHost: data }));
  host.setReplySerializer((payload) => JSON.stringify({ repliedByHost: payload }));
  const schema = { body: { type: 'object' }, response: { 200: { $ref: 'User#' } } };
  host.post('/echo', { schema }, async (request) => request.body);
}

function takeZod(host: FastifyInstance): void {
  host.setValidatorCompiler(validatorCompiler);
  host.setSerializerCompiler(serializerCompiler);
  const body = z.object({ parsedByHost: z.string().startsWith('{"') });
  const schema = { body, response: { 200: z.object({ parsedByHost: z.string().min(8) }) } };
  host.withTypeProvider<ZodTypeProvider>().post('/echo', { schema }, async (request) => request.body);
}

/** Removes the server options, which a plugin does not have. */
export function pluginOptions<O extends { host: unknown; port: unknown; logLevel: unknown }>({
  host: _,
  port: __,
  logLevel: ___,
  ...options
}: O) {
  return options;
}

/** Options for saasBackend on its own store. */
export function saasPluginOptions<O extends SaasBackendOptions>(t: Test, more: O = {} as O) {
  const options = pluginOptions(testOptions(temporaryFolder(t)));
  return { ...options, clock: fakeClock(), random: countedRandom(), ...more };
}

/** Options for identityProvider below `/idp`, on its own store. */
export function idpPluginOptions(t: Test, more: IdentityProviderOptions = {}) {
  const options = {
    ...pluginOptions(idpOptions(temporaryFolder(t))),
    publicUrl: 'http://app.example.test/idp',
  };
  return { ...options, prefix: '/idp', clock: fakeClock(), random: countedRandom(), ...more };
}

const json = { 'content-type': 'application/json' };
const form = { 'content-type': 'application/x-www-form-urlencoded' };
const preflight = { origin: 'https://host.example', 'access-control-request-method': 'POST' };

/** Requests to a host whose answers must not change when our plugins are registered. */
export const OUTSIDE: InjectOptions[] = [
  { method: 'GET', url: '/' },
  { method: 'GET', url: '/nothing?x=1' },
  { method: 'GET', url: '/throws' },
  { method: 'GET', url: '/openapi.json' },
  { method: 'GET', url: '/sign' },
  { method: 'GET', url: '/verify' },
  { method: 'GET', url: '/verify', headers: { authorization: 'Bearer garbage' } },
  { method: 'GET', url: '/basic' },
  { method: 'GET', url: '/basic', headers: { authorization: basic('host', 'x') } },
  { method: 'GET', url: '/user' },
  { method: 'HEAD', url: '/user' },
  { method: 'OPTIONS', url: '/echo', headers: preflight },
  { method: 'OPTIONS', url: '/token', headers: preflight },
  { method: 'POST', url: '/echo', headers: json, payload: '{"a":1}' },
  { method: 'POST', url: '/echo', headers: json, payload: '{}' },
  { method: 'POST', url: '/echo', headers: json, payload: '{broken' },
  { method: 'POST', url: '/echo', headers: { 'content-type': 'text/plain' }, payload: 'text' },
  { method: 'POST', url: '/echo', headers: form, payload: 'a=1' },
  { method: 'POST', url: '/echo', headers: { 'content-type': 'image/png' }, payload: 'x' },
  { method: 'POST', url: '/echo', headers: { ...json, 'content-encoding': 'gzip' }, payload: '{}' },
  { method: 'GET', url: '/%zz' },
  { method: 'GET', url: '/apis' },
  { method: 'GET', url: '/idps' },
  { method: 'GET', url: '/administration' },
  { method: 'GET', url: '/health' },
  { method: 'GET', url: '/jwks' },
  { method: 'GET', url: '/.well-known/openid-configuration' },
];
