import { type ConfigurationWarning, collectProblems } from '../core/config/configuration-error.js';
import type { Resolved } from '../core/config/options.js';
import { systemClock } from '../core/kernel/clock.js';
import { requestDocument } from '../core/outbound/documents.js';
import { createOutbound } from '../core/outbound/request.js';
import { examineCertificate } from '../core/server/certificate.js';
import { diagnose, type Finding } from '../core/server/doctor.js';
import { idpServerSchema, resolveServer, type ServerConfiguration } from '../core/server/options.js';
import { readCollection } from '../core/storage/inspect.js';
import { allOf, pagesOf } from '../core/storage/pages.js';
import { examineMailBacklog, examineMailServer } from '../shared/email/doctor.js';
import { type IssuerDependencies, readKeySet } from './oidc/identity-assertions/key-set.js';
import { hasMailServer, type IdpConfiguration, idpSchema, idpWarnings, resolveIdp } from './options.js';
import type { ClientCollection, PrincipalCollection } from './provisioning/store.js';
import type { ResourceCollection } from './resources/store.js';
import { signUpWarnings } from './resources/warnings.js';

/** Reports what a start of idp would encounter. @param sendMailTo receives a test mail */
export async function examineIdp(sendMailTo?: string): Promise<Finding[]> {
  let config: Resolved<IdpConfiguration> | undefined;
  const findings = await diagnose({
    product: 'idp',
    schemas: [idpSchema, idpServerSchema],
    resolve() {
      const [server, idp] = collectProblems(
        'idp',
        () => resolveServer('idp', idpServerSchema, {}, {}),
        () => resolveIdp({}, false),
      );
      config = idp.config;
      return [server, idp.config];
    },
    warningsOf,
    unwrapHealth: (answer) => answer,
  });
  const storeOpens = findings.every(
    ({ level, about }) => level !== 'problem' || about !== 'IDP_DATABASE_URI',
  );
  if (config === undefined) return findings;
  const { values } = config;
  const { databaseUri, es256Key, publicUrl } = values;
  return [
    ...findings,
    ...(await examineCertificate(publicUrl, { about: 'IDP_PUBLIC_URL', now: systemClock.now() })),
    ...(await examineMailServer(config, { prefix: 'IDP_', publicUrl, sendMailTo })),
    ...(storeOpens ? await examineMailBacklog(databaseUri) : []),
    ...(storeOpens && es256Key === undefined ? await examineClients(databaseUri) : []),
    ...(storeOpens ? await examineResources(values) : []),
    ...(storeOpens ? await examineIssuers(values) : []),
  ];
}

/** For which APIs there is no key, and which give tokens to those who sign up. */
async function examineResources(values: IdpConfiguration): Promise<Finding[]> {
  const { databaseUri, es256Key, disableSignup } = values;
  const read = (all: Pick<ResourceCollection, 'page'>) => allOf(all, { sort: 'identifier' });
  const resources = (await readCollection(databaseUri, 'resources', read, { unique: ['identifier'] })) ?? [];
  const unsigned =
    es256Key === undefined ? resources.filter(({ algorithms }) => algorithms?.[0] === 'ES256') : [];
  const finding: Finding = {
    level: 'warning',
    about: 'IDP_ES256_KEY',
    message: `is not set: nobody gets access tokens with ES256 for ${unsigned.map(({ identifier }) => identifier).join(', ')}`,
    remedy: 'Set it, or change them: idp resource update <uri> --alg EdDSA',
  };
  return [...(unsigned.length > 0 ? [finding] : []), ...(disableSignup ? [] : signUpWarnings(resources))];
}

/** Issuers of the tokens of workloads that do not answer. */
async function examineIssuers({ databaseUri, loopbackDocuments }: IdpConfiguration): Promise<Finding[]> {
  const read = (principals: Pick<PrincipalCollection, 'page'>) =>
    allOf(principals, { where: { workloadRules: { gt: 0 } }, sort: 'id' });
  const found = await readCollection(databaseUri, 'principals', read, { numbers: ['workloadRules'] });
  const rules = (found ?? []).flatMap(({ workloads = [] }) => workloads);
  const issuers = new Set(rules.flatMap(({ issuer, jwks }) => (jwks ? [] : [issuer])));
  const send = createOutbound({ reach: loopbackDocuments ? 'loopback' : 'public' });
  const readDocument: IssuerDependencies['readDocument'] = async (uri, options) => {
    const outcome = await requestDocument(uri, options, send);
    if ('error' in outcome) throw outcome.error;
    return { text: outcome.response.body };
  };
  const deps = { readDocument, throttle: { count: async () => undefined } };
  const findings = [...issuers].map(async (issuer): Promise<Finding[]> => {
    if (await readKeySet(issuer, '', deps)) return [];
    const message = `the keys of ${issuer} cannot be read, so that none of its workloads gets a token`;
    const remedy = 'Make it reachable, or give its keys: idp agent trust add --jwks <file>';
    return [{ level: 'warning', about: 'idp agent trust', message, remedy }];
  });
  return (await Promise.all(findings)).flat();
}

/** The applications that the doctor names, at most. */
const NAMED_CLIENTS = 10;

/** Applications for which there is no key; the store is known to open. */
async function examineClients(databaseUri: string): Promise<Finding[]> {
  const names: string[] = [];
  await readCollection(databaseUri, 'clients', async (clients: Pick<ClientCollection, 'page'>) => {
    for await (const items of pagesOf(clients, { sort: 'id' }))
      for (const { id, name, idTokenAlg } of items)
        if (idTokenAlg === 'ES256') names.push(name === '' ? id : `${name} (${id})`);
  });
  if (names.length === 0) return [];
  const more = names.length > NAMED_CLIENTS ? ` and ${names.length - NAMED_CLIENTS} more` : '';
  const named = names.slice(0, NAMED_CLIENTS).join(', ') + more;
  return [
    {
      level: 'warning',
      about: 'IDP_ES256_KEY',
      message: `is not set: nobody can sign in to applications with ES256: ${named}`,
      remedy: 'Set it, or change them: idp client update <client-id> --id-token-alg EdDSA',
    },
  ];
}

/** How a rotation of a key goes on. */
function rotationWarnings(variable: string, next?: string, previous?: string): ConfigurationWarning[] {
  return [
    [
      next !== undefined,
      `${variable}_NEXT`,
      'is published but does not sign yet',
      `Publish it from every process for ten minutes before it becomes ${variable}: clients and caches keep the keys for five minutes, and some refresh them at most once a minute.`,
    ],
    [
      previous !== undefined,
      `${variable}_PREVIOUS`,
      'is still published',
      'Unset it one day after the rotation: by then, the last token that it signed and the sessions that such tokens refer to have expired.',
    ],
  ];
}

function warningsOf(
  { values, production }: Resolved<IdpConfiguration>,
  server: Resolved<ServerConfiguration>,
): ConfigurationWarning[] {
  return [
    ...idpWarnings({ values, production }),
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
    ...rotationWarnings('IDP_ED25519_SEED', values.ed25519SeedNext, values.ed25519SeedPrevious),
    ...rotationWarnings('IDP_ES256_KEY', values.es256KeyNext, values.es256KeyPrevious),
    [
      values.es256KeyNext !== undefined && values.es256Key === undefined,
      'IDP_ES256_KEY',
      'is not set, so no key signs ES256: IDP_ES256_KEY_NEXT is only published',
      'Set IDP_ES256_KEY to it: the first key can sign at once.',
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
