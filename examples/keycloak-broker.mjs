// Keycloak between the identity provider and an application that supports only RS256. See `--help`.
import { execFile } from 'node:child_process';
import { cpSync, existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import * as kit from './broker-kit.mjs';
import {
  describe,
  expectRefusal,
  serveForeignKey,
  signEverybodyIn,
  signPersonOut,
} from './broker-sign-in.mjs';
import { signUsersIn } from './keycloak-users.mjs';

const VERSION = '26.4.7';
const OLDEST_JAVA = 17;
const REALM = 'demo';

const HELP = `Starts the identity provider and Keycloak with the realm in examples/keycloak-broker.json,
signs a person and an agent in to an application of Keycloak, signs the person out, signs users of Keycloak in to
saas-backend, shows that a foreign key is rejected, and stops everything it started.

Usage
  node examples/keycloak-broker.mjs [--keycloak <folder or zip>] [--stay]

Options
  --keycloak <folder or zip>  a Keycloak 26 to copy; by default, Maven downloads ${VERSION} (160 MB, once)
  --stay                      keeps everything running until Ctrl-C and skips the foreign key
  --help                      shows this help

Requires Java ${OLDEST_JAVA} or newer, about a minute, and a gigabyte of memory.`;

const command = promisify(execFile);

const { values: flags } = readArguments();
if (flags.help) console.log(HELP);
else await kit.run(example);

function readArguments() {
  try {
    return parseArgs({
      options: { keycloak: { type: 'string' }, stay: { type: 'boolean' }, help: { type: 'boolean' } },
    });
  } catch (error) {
    console.error(`${error.message}\n\n${HELP}`);
    process.exit(2);
  }
}

async function example(house) {
  await findJava();
  const home = await kit.step('Keycloak unpacked', () => unpack(house.folder));
  const port = await kit.freePort();
  const keycloak = { url: `http://localhost:${port}`, password: kit.newSecret() };
  const callback = `${keycloak.url}/realms/${REALM}/broker/idp/endpoint`;
  const provider = await kit.step('Identity provider started', () =>
    kit.startProvider(house, callback, `${callback}/logout_response`),
  );
  const program = await kit.step(`Keycloak started at ${keycloak.url}`, async () => {
    const args = [join(home, 'bin/kc.sh'), 'start-dev', '--http-host=127.0.0.1', `--http-port=${port}`];
    const program = house.start('sh', args, {
      KC_BOOTSTRAP_ADMIN_USERNAME: 'admin',
      KC_BOOTSTRAP_ADMIN_PASSWORD: keycloak.password,
      // Halves the start time, but makes it slower afterwards.
      JAVA_OPTS_APPEND: '-XX:TieredStopAtLevel=1',
    });
    await kit.untilReady(program, `${keycloak.url}/realms/master`);
    return program;
  });

  const admin = await signInAsAdmin(keycloak);
  const application = {
    issuer: `${keycloak.url}/realms/${REALM}`,
    clientId: 'app',
    clientSecret: kit.newSecret(),
    // Keycloak's own form is skipped.
    hint: { kc_idp_hint: 'idp' },
    scope: 'openid email profile',
    kindIn: ({ kind }) => kind,
  };
  await setUp(admin, provider, application);
  console.log(`${provider.issuer} registered as an OpenID Connect provider of realm ${REALM}`);
  await signEverybodyIn(application, provider);
  await signPersonOut(application, provider);
  // The token of the administrator is valid for a minute.
  const users = { issuer: application.issuer, realm: REALM, admin: await signInAsAdmin(keycloak) };
  await signUsersIn(house, users);
  if (flags.stay) {
    console.log(`Keycloak's administrator: admin ${keycloak.password}`);
    await describe(application, provider);
    return program.closed;
  }

  const foreign = await serveForeignKey(provider);
  try {
    const path = `${REALM}/identity-provider/instances/idp`;
    const again = await signInAsAdmin(keycloak);
    const instance = await again('GET', path);
    await again('PUT', path, { ...instance, config: { ...instance.config, jwksUrl: foreign.url } });
    await expectRefusal(application, provider, program, /token signature validation failed/i);
  } finally {
    foreign.close();
  }
}

async function findJava() {
  const java = process.env.JAVA_HOME ? join(process.env.JAVA_HOME, 'bin/java') : 'java';
  const needed = `Keycloak requires Java ${OLDEST_JAVA} or newer: apt-get install default-jre-headless, or set JAVA_HOME.`;
  const { stderr } = await command(java, ['-version']).catch(() => {
    throw new kit.Problem(`${java} was not found. ${needed}`);
  });
  const [, version] = /version "(\d+)/.exec(stderr) ?? [];
  if (Number(version) < OLDEST_JAVA) throw new kit.Problem(`${java} is Java ${version}. ${needed}`);
}

/** @returns the folder of a separate Keycloak */
async function unpack(folder) {
  const given = flags.keycloak === undefined ? await fetchKeycloak(folder) : resolve(flags.keycloak);
  if (!existsSync(given)) throw new kit.Problem(`${given} does not exist.`);
  const home = join(folder, 'keycloak');
  if (statSync(given).isDirectory()) {
    // Its own realms and users are not copied.
    cpSync(given, home, { recursive: true, filter: (source) => source !== join(given, 'data') });
  } else {
    await command('unzip', ['-q', given, '-d', home]).catch(({ message }) => {
      throw new kit.Problem(`${given} cannot be unpacked: ${message}`);
    });
  }
  // The zip holds one folder, named after the version.
  const candidates = [home, ...readdirSync(home).map((name) => join(home, name))];
  const found = candidates.find((candidate) => existsSync(join(candidate, 'bin/kc.sh')));
  if (!found) throw new kit.Problem(`${given} is not a Keycloak: it has no bin/kc.sh.`);
  return found;
}

async function fetchKeycloak(folder) {
  const artifact = `org.keycloak:keycloak-quarkus-dist:${VERSION}:zip`;
  await command('mvn', [
    '-q',
    'dependency:copy',
    `-Dartifact=${artifact}`,
    `-DoutputDirectory=${folder}`,
  ]).catch(({ code, stdout = '' }) => {
    const reason = code === 'ENOENT' ? 'mvn was not found' : `Maven cannot download it: ${stdout}`;
    throw new kit.Problem(`${reason}. Install Maven, or set the path of a Keycloak with --keycloak.`);
  });
  return join(folder, `keycloak-quarkus-dist-${VERSION}.zip`);
}

/** @returns a function that sends requests to the admin REST API, below /admin/realms */
async function signInAsAdmin({ url, password }) {
  const answer = await fetch(`${url}/realms/master/protocol/openid-connect/token`, {
    method: 'POST',
    body: new URLSearchParams({
      grant_type: 'password',
      client_id: 'admin-cli',
      username: 'admin',
      password,
    }),
  });
  const { access_token: token, error } = await answer.json();
  if (!token) throw new Error(`Keycloak rejects its administrator: ${error}`);
  return async (method, path, body) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const response = await fetch(`${url}/admin/realms/${path}`, {
      method,
      headers,
      body: JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${text}`);
    return text === '' ? undefined : JSON.parse(text);
  };
}

/** The one-time setup by an operator. */
async function setUp(admin, provider, application) {
  const secrets = {
    IDP_CLIENT_ID: provider.client.client_id,
    IDP_CLIENT_SECRET: provider.client.client_secret,
    APP_SECRET: application.clientSecret,
  };
  const realm = readFileSync(new URL('keycloak-broker.json', import.meta.url), 'utf8')
    .replaceAll('http://localhost:8080', provider.issuer)
    .replaceAll(/\$\{(\w+)\}/g, (_whole, name) => secrets[name]);
  await admin('POST', '', JSON.parse(realm));

  // Otherwise, Keycloak asks principals without a last name for it with a form, which agents cannot fill in. Only
  // administrators can write undeclared attributes, such as kind.
  const profile = await admin('GET', `${REALM}/users/profile`);
  await admin('PUT', `${REALM}/users/profile`, {
    ...profile,
    attributes: profile.attributes.map((attribute) =>
      attribute.name === 'lastName' ? { ...attribute, required: undefined } : attribute,
    ),
    unmanagedAttributePolicy: 'ADMIN_EDIT',
  });
}
