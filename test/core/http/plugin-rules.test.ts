import fastify from 'fastify';
import t from 'tap';
import { createBrand } from '../../../src/core/http/brand.js';
import { createPages } from '../../../src/core/http/pages.js';
import { access, type PluginRules, registerRoutes } from '../../../src/core/http/routes.js';
import { renderEnvelope, renderOAuth } from '../../../src/core/kernel/errors.js';
import { healthPlugin } from '../../../src/core/ops/health.js';
import { type Store, StoreUnavailable } from '../../../src/core/storage/collection.js';
import { pluginRules } from '../../kit/plugin-rules.js';

/** The rules that a plugin has for its routes. */

t.test('errors reveal no internals in any rendering', async (t) => {
  const secret = 'connect ECONNREFUSED db.internal:5432 password=canary';
  const renderings: PluginRules['renderError'][] = [
    (error, _request, id) => renderEnvelope(error, id),
    (error) => renderOAuth(error),
    (error, request, id) => createPages(createBrand({}, () => 'x')).renderError(error, request, id),
  ];
  for (const renderError of renderings) {
    const app = fastify();
    t.teardown(() => app.close());
    await registerRoutes(app, pluginRules({ renderError }), async (instance) => {
      instance.get('/throws', { config: access('public') }, async () => {
        throw new Error(secret);
      });
      instance.get('/rejects', { config: access('public') }, async () => Promise.reject(secret));
      instance.get('/undefined', { config: access('public') }, async () => Promise.reject(undefined));
      instance.get('/status', { config: access('public') }, async () => {
        throw Object.assign(new Error(secret), { statusCode: 502, headers: { 'x-leak': 'canary' } });
      });
      instance.get('/refuses', { config: access('public') }, async () => {
        throw Object.assign(new Error(secret), { statusCode: 403 });
      });
    });
    for (const path of ['/throws', '/rejects', '/undefined', '/status']) {
      const answer = await app.inject(`/x${path}?token=canary`);
      t.equal(answer.statusCode, 500);
      t.notMatch(answer.body, /canary|internal|Error:|\.js|at /);
      t.equal(answer.headers['x-leak'], undefined);
    }
    t.equal((await app.inject('/x/refuses')).statusCode, 403);
    t.notMatch((await app.inject('/x/refuses')).body, 'canary');
    const missing = await app.inject('/x/nothing?token=canary');
    t.equal(missing.statusCode, 404);
    t.notMatch(missing.body, /canary|nothing\?/);
  }
});

t.test('a route without a declared access level prevents the start', async (t) => {
  for (const config of [undefined, {}, access('nobody knows')]) {
    const app = fastify();
    t.teardown(() => app.close());
    await t.rejects(
      Promise.resolve(
        registerRoutes(app, pluginRules(), async (instance) => {
          instance.get('/open', { ...(config && { config }) }, async () => 'open');
        }),
      ).then(() => app.ready()),
      /GET \/x\/open (does not state config.access|asks for the unknown access level)/,
    );
  }
});

t.test('readiness follows the store, and ends when the server drains', async (t) => {
  let isDraining = false;
  let problem: Error | undefined;
  const store = {
    async ready() {
      if (problem) throw problem;
    },
  } as Store;
  const app = fastify();
  t.teardown(() => app.close());
  await registerRoutes(app, pluginRules({ isDraining: () => isDraining }), async (instance) => {
    await instance.register(healthPlugin, { store, wrap: (state) => state });
  });
  t.equal((await app.inject('/x/ready')).statusCode, 200);
  problem = new StoreUnavailable('SQLite: disk I/O error');
  const down = await app.inject('/x/ready');
  t.equal(down.statusCode, 503);
  t.equal(down.headers['retry-after'], '5');
  t.equal(down.json().error.code, 'NOT_READY');
  t.notMatch(down.body, 'SQLite');
  problem = undefined;
  isDraining = true;
  t.equal((await app.inject('/x/ready')).statusCode, 503);
  t.equal((await app.inject('/x/health')).statusCode, 200);
});
