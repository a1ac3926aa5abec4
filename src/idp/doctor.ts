import type { Advice } from '../config/advice.js';
import { gatherProblems } from '../config/configuration-error.js';
import type { Resolved } from '../config/options.js';
import { examine, type Finding } from '../server/doctor.js';
import { idpServerSchema, resolveServer, type ServerConfiguration } from '../server/options.js';
import { adviseIdp, type IdpConfiguration, idpSchema, resolveIdp } from './options.js';

/** What a start of idp would meet. */
export function examineIdp(): Promise<Finding[]> {
  return examine({
    product: 'idp',
    schemas: [idpSchema, idpServerSchema],
    resolve() {
      const [server, idp] = gatherProblems(
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
    unwise,
    unwrapHealth: (answer) => answer,
  });
}

function unwise(
  { values, production }: Resolved<IdpConfiguration>,
  server: Resolved<ServerConfiguration>,
): Advice[] {
  return [
    ...adviseIdp({ values, production }),
    [
      production && values.databaseUri === 'sqlite::memory:',
      'IDP_DATABASE_URI',
      'keeps everything in memory: a restart forgets all principals and clients',
      'Name a file (sqlite:/var/lib/idp.db) or a MongoDB.',
    ],
    [
      production && values.adminToken === undefined,
      'IDP_ADMIN_TOKEN',
      'is not set: the endpoints of the administrator answer 501',
      'Set it to 32 random characters or more, unless clients and agents are made on this machine only.',
    ],
    [
      values.ed25519SeedNext !== undefined,
      'IDP_ED25519_SEED_NEXT',
      'is published and signs nothing yet',
      'Let every process publish it for ten minutes before it becomes IDP_ED25519_SEED: clients and caches keep the keys for five, and some look no more than once a minute.',
    ],
    [
      values.ed25519SeedPrevious !== undefined,
      'IDP_ED25519_SEED_PREVIOUS',
      'still verifies tokens',
      'Unset it a day after the change: the last token that it signed has expired by then, and so has every session that such a token names.',
    ],
    [
      production && (values.trustedEmailDomains ?? []).length > 0 && values.inviteToken === undefined,
      'IDP_TRUSTED_EMAIL_DOMAINS',
      'is believed of whoever IDP_ADMIN_TOKEN invites: a stolen one makes verified addresses of these domains',
      'Set IDP_INVITE_TOKEN to another secret.',
    ],
    [
      production && server.values.trustProxy === false,
      'IDP_TRUST_PROXY',
      'is not set: behind a proxy all clients share its address, and so their limits',
      'List the addresses of the proxy, unless clients connect directly.',
    ],
  ];
}
