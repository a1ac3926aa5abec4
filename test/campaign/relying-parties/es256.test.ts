/** Products that do not verify EdDSA sign people and agents in with ES256. */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { Agent } from '../../kit/agent.js';
import { parseJson } from '../../kit/app.js';
import type { RegisteredClient } from '../../kit/idp.js';
import { serverPorts } from '../../kit/port.js';
import { compiled, startCommand } from '../../kit/process.js';
import { addResource } from '../../kit/resources.js';
import { withOrSkip } from '../../kit/skip.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { words } from '../../kit/words.js';
import {
  type Known,
  type Provider,
  startProvider,
  startSite,
  type Visitor,
  withBasic,
  withForm,
} from './kit.js';

const ES256_KEY = 'c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721';
const SOURCES = join(compiled('.'), '../test/campaign/relying-parties');
const run = promisify(execFile);

/** The clients of a product. Each fetches the keys itself, because products cache them. */
const CLIENTS = {
  accepted: { id_token_signed_response_alg: 'ES256' },
  foreign: { id_token_signed_response_alg: 'ES256' },
  plain: {},
} as const;
type Name = keyof typeof CLIENTS;

/** The clients of products that can be extended to verify EdDSA. */
const EDDSA_CLIENTS = { eddsa: {}, eddsaForeign: {} } as const;
type EddsaName = keyof typeof EDDSA_CLIENTS;

type Applications = Record<Name, Application> & Partial<Record<EddsaName, Application>>;

/** A running application. */
interface Application {
  /** The address that begins the sign-in. */
  start: string;
  /** What it has logged, if its answers do not contain the reason of a refusal. */
  log?(): string;
}

interface Peer {
  open(t: Test, provider: Provider): Promise<Applications>;
  /** How it refuses a foreign key, and EdDSA. */
  refuses: { foreign: RegExp; plain: RegExp };
}

/** The identity that the application received, or the reason of its refusal. */
async function signIn({ start, log }: Application, visit: Visitor) {
  const browser = new Agent({ origin: start, headers: { accept: 'text/html, */*' } });
  const { location = '' } = await browser.open(start);
  const { status, headers, body } = await browser.open((await visit(location)).href);
  return headers.get('content-type')?.startsWith('application/json')
    ? { known: parseJson(body) as Known }
    : { known: null, refusal: `${status} ${body} ${log?.() ?? ''}` };
}

async function signsIn(t: Test, { open, refuses }: Peer): Promise<void> {
  const provider = await startProvider(t, { es256Key: ES256_KEY });
  const { issuer, middle, human, agent } = provider;
  const { accepted, plain, foreign, eddsa, eddsaForeign } = await open(t, provider);
  for (const [who, visit, name, kind] of [
    [human, withForm(issuer, human), 'Ada', 'human'],
    [agent, withBasic(agent), 'Scout', 'agent'],
  ] as const) {
    const profile = { sub: who.sub, email: who.handle, name };
    for (const application of eddsa ? [accepted, eddsa] : [accepted]) {
      const outcome = await signIn(application, visit);
      if (outcome.known === null) t.comment(outcome.refusal);
      t.match(outcome, { known: { claims: { ...profile, iss: issuer, kind }, userinfo: profile } }, kind);
    }
  }
  t.match(await signIn(plain, withBasic(agent)), { known: null, refusal: refuses.plain }, 'EdDSA');
  middle.swapsKey = true;
  for (const application of eddsaForeign ? [foreign, eddsaForeign] : [foreign]) {
    const outcome = await signIn(application, withBasic(agent));
    t.match(outcome, { known: null, refusal: refuses.foreign }, 'a foreign key under our kid');
  }
}

/** One process for each client. */
async function openEach(
  { idp }: Provider,
  callback: string,
  open: (client: RegisteredClient, port: number, name: Name) => Promise<Application>,
): Promise<Record<Name, Application>> {
  const names = Object.keys(CLIENTS) as Name[];
  const ports = await serverPorts(names.length);
  const opened = names.map(async (name, index) => {
    const port = ports[index] as number;
    const redirect_uris = [`http://127.0.0.1:${port}${callback}`];
    return [name, await open(await idp.createClient({ redirect_uris, ...CLIENTS[name] }), port, name)];
  });
  return Object.fromEntries(await Promise.all(opened));
}

const inDjango = (python: string): Peer => ({
  open: (t, provider) =>
    openEach(provider, '/oidc/callback/', async ({ id, secret = '' }, port, name) => {
      const program = startCommand(t, python, {
        args: [join(SOURCES, 'python/django_app.py')],
        env: {
          ISSUER: provider.issuer,
          CLIENT_ID: id,
          CLIENT_SECRET: secret,
          SIGN_ALGO: name === 'plain' ? 'EdDSA' : 'ES256',
          PORT: String(port),
        },
      });
      return { start: await program.url() };
    }),
  refuses: {
    foreign: /^400 SuspiciousOperation: JWS token verification failed/,
    plain: /^400 InvalidKeyError: Not a public or private key/,
  },
});

/** Whether the libraries verify an id_token; a sign-in needs more. */
async function verifiesInPython(t: Test, python: string): Promise<void> {
  const { idp, issuer, middle, agent } = await startProvider(t, { es256Key: ES256_KEY });
  const verify = async (algorithm: 'EdDSA' | 'ES256') => {
    const client = await idp.createClient({ id_token_signed_response_alg: algorithm });
    const resource = await addResource(t, idp, `https://${algorithm.toLowerCase()}.example.test`, {
      algorithm,
    });
    const asked = { scope: 'openid files:read', resource: resource.identifier };
    const { id_token, access_token } = (await idp.redeem(client, await idp.codeFor(client, agent, asked)))
      .body;
    const jwks = await (await fetch(`${issuer}/jwks`)).json();
    const child = run(python, [join(SOURCES, 'python/verify.py')]);
    child.child.stdin?.end(
      JSON.stringify({
        id_token,
        jwks,
        issuer,
        client_id: client.id,
        algorithm,
        access_token,
        resource: resource.identifier,
      }),
    );
    return JSON.parse((await child).stdout);
  };
  const { sub } = agent;
  t.match(await verify('ES256'), {
    python_jose: sub,
    pyoidc: sub,
    idpyoidc: sub,
    social_core: sub,
    pyjwt: sub,
  });
  t.match(await verify('EdDSA'), {
    pyjwt: sub,
    python_jose: /^JWKError: Unable to find an algorithm for key/,
    pyoidc: /Error/,
    idpyoidc: sub,
    social_core: sub,
  });
  middle.swapsKey = true;
  t.match(await verify('ES256'), {
    python_jose: /^JWTError: Signature verification failed/,
    pyoidc: /^BadSignature/,
    idpyoidc: /^BadSignature/,
    social_core: /signature could not be verified/,
  });
  t.match(await verify('EdDSA'), {
    idpyoidc: /^BadSignature/,
    social_core: /signature could not be verified/,
  });
}

await withOrSkip(
  {
    name: 'es256-python',
    subject: 'ES256 with Django and libraries for Python',
    want: 'a Python with its packages',
    remedy:
      'Install test/campaign/relying-parties/python/requirements.txt in a virtual environment, and set TEST_PYTHON to its python.',
  },
  async () => {
    const python = process.env['TEST_PYTHON'] ?? 'python3';
    await run(python, ['-c', 'import django, mozilla_django_oidc, jose, oic, idpyoidc, social_core']);
    return python;
  },
  (python) => {
    t.test('libraries for Python verify ES256, some of them EdDSA too, and refuse a foreign key', (t) =>
      verifiesInPython(t, python),
    );

    t.test(
      'mozilla-django-oidc signs people and agents in with ES256, and refuses EdDSA and a foreign key',
      (t) => signsIn(t, inDjango(python)),
    );
  },
);

const MODULES = '/usr/lib/apache2/modules';

/** mod_auth_openidc protects a site behind Apache and tells it the claims in headers. */
const inApache: Peer = {
  async open(t, provider) {
    const site = await startSite(t);
    site.answer = ({ headers }, response) => {
      const json = (name: string) => JSON.parse(String(headers[name]));
      response.setHeader('content-type', 'application/json');
      response.end(
        JSON.stringify({ claims: json('oidc_id_token_payload'), userinfo: json('oidc_userinfo_json') }),
      );
    };
    return openEach(provider, '/callback', async ({ id, secret, redirectUri }, port) => {
      const folder = temporaryFolder(t);
      const [configuration, errors] = [join(folder, 'apache2.conf'), join(folder, 'error.log')];
      const modules = words(
        'mpm_event authn_core authz_core authz_user headers proxy proxy_http auth_openidc',
      );
      writeFileSync(
        configuration,
        `ServerRoot ${folder}
DefaultRuntimeDir ${folder}
PidFile ${folder}/pid
ErrorLog ${errors}
ServerName 127.0.0.1
Listen 127.0.0.1:${port}
User www-data
Group www-data
${modules.map((name) => `LoadModule ${name}_module ${MODULES}/mod_${name}.so`).join('\n')}
OIDCProviderMetadataURL ${provider.issuer}/.well-known/openid-configuration
OIDCClientID ${id}
OIDCClientSecret ${secret}
OIDCRedirectURI ${redirectUri}
OIDCCryptoPassphrase application-Wd8sKq2vTn5LzYc0Rj7Hx
OIDCScope "openid email profile"
OIDCPassIDTokenAs payload
OIDCPassUserInfoAs json
# Node's fetch says that it is not a navigation.
RequestHeader unset Sec-Fetch-Mode early
ProxyPass /callback !
ProxyPass / ${site.url}/
<Location />
AuthType openid-connect
Require valid-user
</Location>
`,
      );
      // With -X it is a single process, so that none outlives the test.
      startCommand(t, 'apache2', { args: ['-f', configuration, '-X'] });
      const start = `http://127.0.0.1:${port}/`;
      const isUp = () =>
        fetch(start, { redirect: 'manual' }).then(
          () => true,
          () => false,
        );
      await waitUntil('Apache answers', isUp);
      return { start, log: () => readFileSync(errors, 'utf8') };
    });
  },
  refuses: {
    foreign: /id_token signature could not be validated/,
    plain: /cjose_jws_import failed: invalid argument/,
  },
};

await withOrSkip(
  {
    name: 'apache',
    subject: 'Apache with mod_auth_openidc',
    want: 'an Apache with mod_auth_openidc',
    remedy: 'apt-get install apache2-bin libapache2-mod-auth-openidc',
  },
  async () => {
    await run('apache2', ['-v']);
    if (!existsSync(`${MODULES}/mod_auth_openidc.so`)) throw new Error('mod_auth_openidc is not installed');
  },
  () => {
    t.test(
      'mod_auth_openidc signs people and agents in with ES256, and refuses EdDSA and a foreign key',
      (t) => signsIn(t, inApache),
    );
  },
);

/** One process for all clients, because it takes seconds to start. */
const inSpring = (jar: string): Peer => ({
  async open(t, { idp, issuer }) {
    const [port] = await serverPorts(1);
    const clients = { ...CLIENTS, ...EDDSA_CLIENTS };
    const registered = Object.entries(clients).map(async ([name, more]) => {
      const redirect_uris = [`http://127.0.0.1:${port}/login/oauth2/code/${name}`];
      const { id, secret } = await idp.createClient({ redirect_uris, ...more });
      const scope = ['openid', 'email', 'profile'];
      return [name, { provider: 'idp', clientId: id, clientSecret: secret, scope }];
    });
    const registration = Object.fromEntries(await Promise.all(registered));
    const client = { registration, provider: { idp: { issuerUri: issuer } } };
    const server = { address: '127.0.0.1', port };
    const json = JSON.stringify({ server, spring: { security: { oauth2: { client } } } });
    const program = startCommand(t, 'java', {
      args: ['-XX:TieredStopAtLevel=1', '-Xmx256m', '-jar', jar],
      env: { SPRING_APPLICATION_JSON: json },
    });
    await program.printed(/Started Application/);
    const open = (name: string) => [name, { start: `http://127.0.0.1:${port}/oauth2/authorization/${name}` }];
    return Object.fromEntries(Object.keys(clients).map(open));
  },
  refuses: {
    foreign: /^401 .*Signed JWT rejected: Invalid signature/,
    plain: /^401 .*Signed JWT rejected: Another algorithm expected, or no matching key/,
  },
});

await withOrSkip(
  {
    name: 'spring',
    subject: 'An application with Spring Boot',
    want: 'a Java with the application',
    remedy:
      'mvn -f test/campaign/relying-parties/spring package -Dfolder=<folder>, and set TEST_SPRING to the path of app.jar in that folder.',
  },
  async () => {
    await run('java', ['-version']);
    const jar = process.env['TEST_SPRING'];
    if (jar === undefined || !existsSync(jar)) throw new Error('TEST_SPRING is not the path of a file');
    return jar;
  },
  (jar) => {
    t.test(
      'Spring Boot signs people and agents in with ES256, and with EdDSA by a decoder of its own, and refuses a foreign key',
      (t) => signsIn(t, inSpring(jar)),
    );
  },
);
