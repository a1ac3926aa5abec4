import fastify from 'fastify';
import t from 'tap';
import { identityProvider } from '../../../src/index.js';
import { idpPluginOptions } from '../../kit/host.js';
import { ISSUER, idpApp } from '../../kit/idp.js';

/** Programs that know only an e-mail address find the issuer (RFC 7033). */

const URL = '/.well-known/webfinger';
const RELATION = 'http://openid.net/specs/connect/1.0/issuer';
const path = (...query: [string, string][]) => `${URL}?${new URLSearchParams(query)}`;
const LINK = { rel: RELATION, href: ISSUER };

t.test('addresses of the host of the issuer and of the trusted domains have the issuer', async (t) => {
  const idp = await idpApp(t, { trustedEmailDomains: ['example.com', 'Example.ORG'] });
  const { handle } = await idp.makeHuman({ handle: 'ada@example.com' });
  const known = await idp.request('GET', path(['resource', `acct:${handle}`], ['rel', RELATION]));
  t.match(known, {
    status: 200,
    headers: {
      'content-type': 'application/jrd+json',
      'access-control-allow-origin': '*',
      'x-content-type-options': 'nosniff',
    },
  });
  t.strictSame(known.body, { subject: 'acct:ada@example.com', links: [LINK] });
  for (const resource of ['acct:nobody@example.com', 'ACCT:a@EXAMPLE.org', `acct:x@${ISSUER.slice(8)}`]) {
    const { status, headers, body } = await idp.request('GET', path(['resource', resource]));
    t.strictSame([status, body], [200, { subject: resource, links: [LINK] }], 'whether or not it exists');
    t.strictSame(headers['cache-control'], known.headers['cache-control']);
  }
});

t.test('there is the issuer alone', async (t) => {
  const idp = await idpApp(t);
  const resource: [string, string] = ['resource', 'acct:ada@id.example.test'];
  const links = async (...rels: string[]) =>
    (await idp.request('GET', path(resource, ...rels.map((rel): [string, string] => ['rel', rel])))).body
      .links;
  t.strictSame(await links('http://webfinger.net/rel/avatar'), []);
  t.strictSame(await links('http://webfinger.net/rel/avatar', RELATION), [LINK]);
  t.strictSame(await links(), [LINK]);
});

t.test('other resources are unknown, and what is no resource is refused', async (t) => {
  const idp = await idpApp(t, { trustedEmailDomains: ['example.com'] });
  for (const resource of [
    'acct:ada@elsewhere.test',
    'acct:ada@sub.example.com',
    'acct:ada@notexample.com',
    'acct:ada@elsewhere.test@example.com',
    'acct:@example.com',
    'acct:ada@',
    'mailto:ada@example.com',
    'https://example.com/ada',
    'example.com',
  ]) {
    const { status, body } = await idp.request('GET', path(['resource', resource]));
    t.match([status, body.error], [404, 'not_found'], resource);
  }
  const account: [string, string] = ['resource', 'acct:ada@example.com'];
  for (const query of [
    [],
    [['rel', RELATION]],
    [['resource', '']],
    [account, account],
    [['resource[]', 'acct:ada@example.com']],
    [['resource', `acct:${'a'.repeat(512)}@example.com`]],
    [['resource', 'acct:a\nb@example.com']],
    [['resource', 'acct:a\u2028b@example.com']],
    [account, ['rel', 'x'.repeat(257)]],
    [account, ...Array.from({ length: 17 }, () => ['rel', RELATION])],
  ] as [string, string][][]) {
    const { status } = await idp.request('GET', path(...query));
    t.equal(status, 400, encodeURI(JSON.stringify(query)).slice(0, 99));
  }
  for (const method of ['POST', 'PUT', 'DELETE'] as const)
    t.not((await idp.request(method, path(account))).status, 200, method);
});

t.test('an issuer with a path answers at the root of its host', async (t) => {
  const publicUrl = `${ISSUER}/auth`;
  const idp = await idpApp(t, { publicUrl, prefix: '/auth' });
  const url = path(['resource', 'acct:ada@id.example.test']);
  const { statusCode, body } = await idp.server.fastify.inject(url);
  t.equal(statusCode, 200);
  t.strictSame(JSON.parse(body).links, [{ rel: RELATION, href: publicUrl }]);
  t.equal((await idp.request('GET', url)).status, 404);
});

t.test('the path stays with a host that has it', async (t) => {
  const url = path(['resource', 'acct:ada@localhost']);
  const host = fastify();
  t.teardown(() => host.close());
  host.get(URL, async () => 'mine');
  await host.register(identityProvider, idpPluginOptions(t));
  t.equal((await host.inject(url)).body, 'mine');

  const late = fastify();
  t.teardown(() => late.close());
  await late.register(identityProvider, idpPluginOptions(t));
  t.throws(() => late.get(URL, async () => 'mine'), {
    message: /webfinger is declared .* before you register/,
  });

  const below = fastify();
  t.teardown(() => below.close());
  await below.register(
    async (instance) => void (await instance.register(identityProvider, idpPluginOptions(t))),
    { prefix: '/below' },
  );
  for (const address of [url, `/below${url}`])
    t.equal((await below.inject(address)).statusCode, 404, address);
});
