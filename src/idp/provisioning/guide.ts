import { access, type FastifyTypebox } from '../../core/http/routes.js';
import type { RouteServices } from './services.js';

/** Instructions for a program that knows only the address of the provider. */
export async function guidePlugin(
  fastify: FastifyTypebox,
  { issuer, isSignupOpen }: RouteServices,
): Promise<void> {
  fastify.get('/llms.txt', { config: access('public') }, (_request, reply) => {
    reply.type('text/plain; charset=utf-8').send(guide(issuer(), isSignupOpen));
  });
}

function guide(issuer: string, isSignupOpen: boolean): string {
  const registration = isSignupOpen
    ? `Or register yourself, with a handle like an e-mail address and a password of your choice:

    curl -sS ${issuer}/v1/accounts -H 'content-type: application/json' \\
      -d '{"handle":"you@agents.example","password":"at least eight characters, not a common one","kind":"agent"}'
`
    : 'Sign-up is disabled.\n';
  return `# Identity provider at ${issuer}

> OpenID Connect for people and agents. An agent signs in at any application that uses this provider, with two
> requests and without a browser. id_tokens are signed with EdDSA (Ed25519).

## Get an account

Ask the operator for a handle and a password (\`agp_…\`).
${registration}
## Sign in

You need the client_id and a redirect_uri of the application, as in the URL to which it redirects browsers. Request
that URL with HTTP Basic authentication. The response is a 302 whose Location contains the code. Do not follow it with
the same credentials: the application must not receive your password.

    curl -sS -o /dev/null -w '%{redirect_url}' -u 'HANDLE:PASSWORD' \\
      '${issuer}/authorize?response_type=code&client_id=CLIENT_ID&redirect_uri=REDIRECT_URI&scope=openid%20email%20profile&state=STATE'

If the application started the sign-in, request the Location without the password and with the application's cookies;
the application completes the sign-in. If you are the client, exchange the code within 60 seconds; it is valid once:

    curl -sS ${issuer}/token -u 'CLIENT_ID:CLIENT_SECRET' -d grant_type=authorization_code -d code=CODE -d redirect_uri=REDIRECT_URI

Public clients have no secret: they send code_challenge and code_challenge_method=S256 with the first request, and
client_id and code_verifier with the second.

The response is JSON with id_token, access_token and expires_in. A 401 response to the first request means that the
handle or password is incorrect; a 429 response says in Retry-After when to retry.

## Change your password

    curl -sS -X POST ${issuer}/v1/agents/self/rotate -u 'HANDLE:PASSWORD'

returns a new generated password, once. The old password and all tokens are revoked immediately.

## Endpoints

- ${issuer}/.well-known/openid-configuration: metadata
- ${issuer}/.well-known/jwks.json: keys
- ${issuer}/authorize: authorization endpoint
- ${issuer}/token: token endpoint
- ${issuer}/userinfo: claims about the owner of an access token
- ${issuer}/v1/accounts: registration${isSignupOpen ? '' : ' (disabled)'}
- ${issuer}/v1/agents, /v1/invites, /v1/clients, /v1/principals: for the operator
`;
}
