import { Ajv } from 'ajv';
import type { FastifyInstance, FastifySchema } from 'fastify';
import t from 'tap';
import { Type as TypeBox } from 'typebox';
import { idpSchema } from '../../src/idp-options.js';
import { createIdentityServer } from '../../src/idp-server.js';
import { Type } from '../../src/kernel/type.js';
import { saasSchema } from '../../src/saas-options.js';
import { createServer } from '../../src/saas-server.js';
import { idpServerSchema, saasServerSchema } from '../../src/server-options.js';
import { SECRETS } from '../kit/app.js';
import { ADMIN_TOKEN, ISSUER, SEED } from '../kit/idp.js';

/** Every builder with and without options, as the domains use them. */
function examples(build: typeof Type) {
  const address = build.String({ maxLength: 254 });
  const user = build.Object({
    id: address,
    age: build.Optional(build.Integer({ minimum: 0 })),
    admin: build.Boolean({ default: false }),
    kind: build.Optional(build.Enum(['human', 'agent'], { default: 'human' })),
  });
  return {
    user,
    same: address,
    bare: [build.String(), build.Integer(), build.Boolean(), build.Null(), build.Unknown(), build.Object({})],
    literals: [build.Literal(true), build.Literal('x'), build.Literal(1, { default: 1 })],
    allOptional: build.Object({ id: build.Optional(address) }, { additionalProperties: false }),
    optionalObject: build.Object({ user: build.Optional(user), users: build.Array(user, { minItems: 1 }) }),
    part: build.Pick(user, ['age', 'admin']),
    optionalPart: build.Pick(user, ['age', 'kind']),
    form: build.Record(build.String(), build.Union([build.String(), build.Array(build.String())])),
    choice: build.Union([build.Literal(false), build.Array(address)], { default: false }),
  };
}

t.test('schemas are those of TypeBox', async (t) => {
  t.same(JSON.parse(JSON.stringify(examples(Type))), JSON.parse(JSON.stringify(examples(TypeBox))));
  for (const name of Object.keys(Type)) t.match(String(examples), `.${name}(`, `${name} has an example`);
});

/** Every schema of every route. */
async function routeSchemas(server: { fastify: FastifyInstance; close(): Promise<void> }): Promise<object[]> {
  const found: object[] = [];
  server.fastify.addHook('onRoute', ({ schema = {} }) => {
    const { response = {}, body, querystring, params, headers } = schema as FastifySchema;
    const given = [body, querystring, params, headers, ...Object.values(response as object)];
    found.push(...given.filter((one) => one !== undefined));
  });
  await server.fastify.ready();
  await server.close();
  return found;
}

t.test('schemas keep to JSON Schema, which no start checks', async (t) => {
  const ajv = new Ajv({ strict: false });
  const common = { env: false, logLevel: 'silent', databaseUri: 'sqlite::memory:' } as const;
  const saas = await routeSchemas(createServer({ ...common, ...SECRETS, corsOrigin: ['*'] }));
  const idp = await routeSchemas(
    createIdentityServer({ ...common, publicUrl: ISSUER, ed25519Seed: SEED, adminToken: ADMIN_TOKEN }),
  );
  t.ok(saas.length > 20 && idp.length > 10, 'routes have schemas');
  const options = [saasSchema, saasServerSchema, idpSchema, idpServerSchema];
  for (const schema of [...saas, ...idp, ...options]) {
    t.ok(ajv.validateSchema(schema), ajv.errorsText(), { schema });
  }
});

t.test('the default of an option is a value it may have, which no start checks', async (t) => {
  const ajv = new Ajv({ strict: false });
  const options = [saasSchema, saasServerSchema, idpSchema, idpServerSchema].flatMap(({ properties }) =>
    Object.entries<object>(properties),
  );
  const withDefault = options.filter(([, schema]) => 'default' in schema);
  t.ok(withDefault.length > 5);
  for (const [name, schema] of withDefault) {
    t.ok(ajv.validate(schema, (schema as { default: unknown }).default), name);
  }
});
