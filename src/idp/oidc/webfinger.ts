import { Type } from 'typebox';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { PUBLIC_HEADERS } from './discovery.js';
import type { OidcContext } from './shared.js';

/** Where programs that know only an e-mail address find its issuer (RFC 7033 §4). */
export const WEBFINGER_PATH = '/.well-known/webfinger';
const ISSUER_RELATION = 'http://openid.net/specs/connect/1.0/issuer';

const Relation = Type.String({
  accepts: 'a link relation to return, such as http://openid.net/specs/connect/1.0/issuer',
  maxLength: 256,
  pattern: '^[!-~]+$',
});
const Query = Type.Object({
  resource: Type.String({
    accepts: 'one account, such as acct:ada@example.com',
    maxLength: 512,
    pattern: '^[!-~]+$',
  }),
  rel: Type.Optional(Type.Union([Relation, Type.Array(Relation, { maxItems: 16 })])),
});

/**
 * The issuer for every address of its host and of the trusted domains. Whether an account exists does not matter, so
 * the answers tell nothing about accounts.
 */
export async function webfingerPlugin(
  fastify: FastifyTypebox,
  { issuer, values: { trustedEmailDomains = [] } }: OidcContext,
): Promise<void> {
  const knows = (domain: string) =>
    domain === new URL(issuer()).hostname || trustedEmailDomains.some((one) => one.toLowerCase() === domain);

  fastify.get(
    WEBFINGER_PATH,
    { config: access('public', { cors: false, unmetered: true }), schema: { querystring: Query } },
    async ({ query: { resource, rel } }, reply) => {
      const [, domain = ''] = /^acct:[^@]+@([^@]+)$/i.exec(resource) ?? [];
      if (!knows(domain.toLowerCase())) throw httpErrors.NOT_FOUND();
      const isAsked = rel === undefined || [rel].flat().includes(ISSUER_RELATION);
      const links = isAsked ? [{ rel: ISSUER_RELATION, href: issuer() }] : [];
      reply.headers({ ...PUBLIC_HEADERS, 'content-type': 'application/jrd+json' });
      return reply.send(JSON.stringify({ subject: resource, links }));
    },
  );
}
