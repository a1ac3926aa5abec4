import fastify from 'fastify';
import t, { type Test } from 'tap';
import { Type } from 'typebox';
import { setCompilers } from '../../../src/core/http/compilers.js';
import { Token } from '../../../src/core/http/schemas.js';

/** How a route interprets a body, with our compilers and with those of Fastify. */
async function routes(t: Test, body: object, response: object, answer: unknown) {
  const app = fastify({ ajv: { customOptions: { allErrors: true, coerceTypes: false } } });
  t.teardown(() => app.close());
  const schema = { body, response: { 200: response } };
  app.post('/theirs', { schema }, async () => answer);
  await app.register(async (instance) => {
    setCompilers(instance);
    instance.post('/ours', { schema }, async () => answer);
  });
  return (url: string, payload: object) => app.inject({ method: 'POST', url, payload });
}

t.test('tokens are serialized unescaped, and other texts are escaped', async (t) => {
  const answer = {
    texts: ['"\u2028\\'.repeat(20), '"'],
    token: 'eyJh.'.repeat(20),
    maybe: 'a-b_c.'.repeat(20),
  };
  const response = Type.Object({
    texts: Type.Array(Type.String()),
    token: Token,
    maybe: Type.Optional(Token),
  });
  const post = await routes(t, Type.Object({}), response, answer);
  t.same((await post('/ours', {})).json(), answer);
  t.equal(JSON.stringify(Token), '{"type":"string"}', 'the schema does not reveal its type');

  const unlike = '"'.repeat(50);
  const wrong = await routes(t, Type.Object({}), response, { ...answer, token: unlike, maybe: unlike });
  t.ok((await wrong('/ours', {})).payload.endsWith(`"token":"${unlike}","maybe":"${unlike}"}`));
});
