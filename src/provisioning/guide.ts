import { access, type Scope } from '../http/scope.js';

export interface GuidePluginOptions {
  issuer(): string;
  isSignupOpen: boolean;
}

/** What a program that knows nothing but this address has to know. */
export async function guidePlugin(scope: Scope, { issuer, isSignupOpen }: GuidePluginOptions): Promise<void> {
  scope.get('/llms.txt', { config: access('public') }, (_request, reply) => {
    reply.type('text/plain; charset=utf-8').send(guide(issuer(), isSignupOpen));
  });
}

function guide(issuer: string, isSignupOpen: boolean): string {
  const registration = isSignupOpen
    ? `Or register yourself, with a handle like an e-mail address and a password of your choice:

    curl -sS ${issuer}/v1/accounts -H 'content-type: application/json' \\
      -d '{"handle":"you@agents.example","password":"at least eight bytes, not a common one","kind":"agent"}'
`
    : 'Registration is closed here.\n';
  return `# Identity provider at ${issuer}

> OpenID Connect for people and agents. An agent signs in at any application that uses this provider, with two
> requests and without a browser. id_tokens are signed with EdDSA (Ed25519).

## Get an account

Ask the operator for a handle and a password (\`agp_…\`).
${registration}
## Sign in

You need the client_id and a redirect_uri of the application, as in the address to which it sends browsers. Send that
very address with HTTP Basic. The answer is 302; its Location holds the code. Do not follow it: the application is not
meant to see your password, and some programs would send it along.

    curl -sS -o /dev/null -w '%{redirect_url}' -u 'HANDLE:PASSWORD' \\
      '${issuer}/authorize?response_type=code&client_id=CLIENT_ID&redirect_uri=REDIRECT_URI&scope=openid%20email%20profile&state=STATE'

If the application began the sign-in, open the Location without the password, with the application's cookies: it does
the rest. If you are the client, exchange the code within 60 seconds, once:

    curl -sS ${issuer}/token -u 'CLIENT_ID:CLIENT_SECRET' -d grant_type=authorization_code -d code=CODE -d redirect_uri=REDIRECT_URI

Public clients have no secret: they send code_challenge and code_challenge_method=S256 with the first request, and
client_id and code_verifier with the second.

The answer is JSON with id_token, access_token and expires_in. 401 at the first request means that the handle or the
password is wrong; 429 says in Retry-After when to come back.

## Change your password

    curl -sS -X POST ${issuer}/v1/agents/self/rotate -u 'HANDLE:PASSWORD'

answers with a new generated password, once. The old one and all tokens end at that moment.

## Addresses

- ${issuer}/.well-known/openid-configuration: metadata
- ${issuer}/.well-known/jwks.json: keys
- ${issuer}/authorize: authorization endpoint
- ${issuer}/token: token endpoint
- ${issuer}/userinfo: who an access token is for
- ${issuer}/v1/accounts: registration${isSignupOpen ? '' : ' (closed)'}
- ${issuer}/v1/agents, /v1/invites, /v1/clients, /v1/principals: for the operator
`;
}
