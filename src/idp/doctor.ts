import { type Advice, collectProblems } from '../config/configuration-error.js';
import type { Resolved } from '../config/options.js';
import { diagnose, type Finding } from '../server/doctor.js';
import { idpServerSchema, resolveServer, type ServerConfiguration } from '../server/options.js';
import { adviseIdp, hasMailServer, type IdpConfiguration, idpSchema, resolveIdp } from './options.js';

/** Reports what a start of idp would encounter. */
export function examineIdp(): Promise<Finding[]> {
  return diagnose({
    product: 'idp',
    schemas: [idpSchema, idpServerSchema],
    resolve() {
      const [server, idp] = collectProblems(
        'idp',
        () => resolveServer('idp', idpServerSchema, {}, {}),
        () => resolveIdp({}, false),
      );
      return [server, idp.config];
    },
    storeVariable: 'IDP_DATABASE_URI',
    portVariable: 'IDP_PORT',
    hostVariable: 'IDP_HOST',
    proxyVariable: 'IDP_TRUST_PROXY',
    advise,
    unwrapHealth: (answer) => answer,
  });
}

function advise(
  { values, production }: Resolved<IdpConfiguration>,
  server: Resolved<ServerConfiguration>,
): Advice[] {
  return [
    ...adviseIdp({ values, production }),
    [
      production && values.databaseUri === 'sqlite::memory:',
      'IDP_DATABASE_URI',
      'keeps all data in memory: a restart deletes all principals and clients',
      'Use a file (sqlite:/var/lib/idp.db) or a MongoDB database.',
    ],
    [
      production && values.adminToken === undefined,
      'IDP_ADMIN_TOKEN',
      'is not set: the administrator endpoints respond with 501',
      'Set it to at least 32 random characters, unless you create clients and agents on this machine only.',
    ],
    [
      production && !values.disableSignup && !hasMailServer(values),
      'IDP_EMAIL_SMTP_URL',
      'is not set: people who sign up cannot reset a forgotten password and their addresses stay unverified',
      'Set it, or IDP_EMAIL_API_KEY.',
    ],
    [
      values.ed25519SeedNext !== undefined,
      'IDP_ED25519_SEED_NEXT',
      'is published but does not sign yet',
      'Publish it from every process for ten minutes before it becomes IDP_ED25519_SEED: clients and caches keep the keys for five minutes, and some refresh them at most once a minute.',
    ],
    [
      values.ed25519SeedPrevious !== undefined,
      'IDP_ED25519_SEED_PREVIOUS',
      'is still published',
      'Unset it one day after the rotation: by then, the last token that it signed and the sessions that such tokens refer to have expired.',
    ],
    [
      production && (values.trustedEmailDomains ?? []).length > 0 && values.inviteToken === undefined,
      'IDP_TRUSTED_EMAIL_DOMAINS',
      'applies to every person and agent created with IDP_ADMIN_TOKEN: a stolen token can create verified addresses in these domains',
      'Set IDP_INVITE_TOKEN to a different secret.',
    ],
    [
      production && server.values.trustProxy === false,
      'IDP_TRUST_PROXY',
      'is not set: behind a proxy, all clients share the address of the proxy and therefore its rate limits',
      'List the addresses of the proxy, unless clients connect directly.',
    ],
  ];
}
