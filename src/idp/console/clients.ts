import type { FastifyTypebox } from '../../core/http/routes.js';
import { toTimestamp, toTimestampOrNull } from '../../core/http/schemas.js';
import { AppError, httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { keyTypeOf } from '../../core/kernel/public-jwk.js';
import { type AuditView, toAuditView } from '../../core/ops/audit.js';
import { actionsOn, type Input, registerAction } from '../../shared/console-kit/actions.js';
import { registerDetail } from '../../shared/console-kit/details.js';
import { registerList } from '../../shared/console-kit/lists.js';
import { type Column, tableOf } from '../../shared/console-kit/tables.js';
import type { ClientInput } from '../provisioning/clients.js';
import type { ClientDocument, Kind } from '../provisioning/store.js';
import { LISTED_RECORDS } from './audit.js';
import { LOGOUT_FAILURES } from './logout-failures.js';
import { METADATA_CLIENTS } from './metadata-clients.js';
import { RESOURCES } from './resources.js';
import {
  type ConsoleServices,
  operatorSource,
  requireCurrent,
  requireName,
  type TextForm,
  wordsIn,
} from './sources.js';
import { MAX_READ, matcherOf, pageByUse, UNUSED } from './uses.js';

const KINDS: Record<string, { label: string; kinds: Kind[] }> = {
  both: { label: 'People and agents', kinds: ['agent', 'human'] },
  human: { label: 'People', kinds: ['human'] },
  agent: { label: 'Agents', kinds: ['agent'] },
};

const REFUSAL_COLUMNS: Column<AuditView>[] = [
  { label: 'Time', text: ({ at }) => at, kind: 'time' },
  { label: 'Reason and redirect URI', text: ({ detail }) => detail },
  { label: 'From', text: ({ ip }) => ip, kind: 'code' },
];

const MAX_URIS = 50;
const MAX_URI_LENGTH = 2048;

const choiceOf = ({ principalKinds }: ClientDocument) =>
  principalKinds.length > 1 ? 'both' : (principalKinds[0] ?? 'both');

const methodOf = ({ secretHash, jwks, jwksUri }: ClientDocument): string => {
  if (jwksUri !== undefined) return `Key, published at ${jwksUri} (private_key_jwt)`;
  if (jwks !== undefined) return `Key, ${jwks.length} registered (private_key_jwt)`;
  return secretHash === undefined ? 'None (public application)' : 'Secret, stored as a hash';
};

const yesOrNo = [
  { value: 'no', label: 'No' },
  { value: 'yes', label: 'Yes' },
];

const INPUTS: readonly Input[] = [
  { name: 'name', label: 'Name', hint: 'People see it when they sign in.', maxLength: 200 },
  {
    name: 'redirect_uris',
    label: 'Redirect URIs',
    hint: 'One on each line, like https://app.example.com/callback. Required unless people sign in on devices only.',
    type: 'lines',
  },
  {
    name: 'post_logout_redirect_uris',
    label: 'Logout URIs',
    hint: 'Where the application may send people after sign-out. One on each line; optional.',
    type: 'lines',
  },
  {
    name: 'kinds',
    label: 'Who may sign in',
    options: Object.entries(KINDS).map(([value, { label }]) => ({ value, label })),
  },
  {
    name: 'admitted_groups',
    label: 'Groups that may sign in',
    hint: 'Only their members, separated by commas. Empty: everyone of these kinds.',
  },
  {
    name: 'groups_claim',
    label: 'Groups that it gets',
    hint: 'With the scope groups: all, none, or names, each with = and another name for it, like admins,staff=Employees.',
  },
  {
    name: 'claims',
    label: 'Claims from metadata',
    hint: 'With the scope profile, like department,level:number=grade. Optional.',
    maxLength: 2048,
  },
  {
    name: 'trusted',
    label: 'Trusted',
    hint: 'Signed-in people are not asked for consent. Choose it for your own applications only.',
    options: yesOrNo,
  },
  {
    name: 'strict',
    label: 'Strict',
    hint: 'Every sign-in uses PKCE, and people use the sign-in form, never HTTP Basic.',
    options: yesOrNo,
  },
  {
    name: 'device',
    label: 'Sign-in on devices',
    hint: 'By a code that people enter in another browser, for machines without one.',
    options: yesOrNo,
  },
  {
    name: 'id_token_alg',
    label: 'Signature of id_tokens',
    hint: 'ES256 is for applications that cannot verify EdDSA. It needs the option IDP_ES256_KEY.',
    options: [
      { value: 'EdDSA', label: 'EdDSA' },
      { value: 'ES256', label: 'ES256' },
    ],
  },
  {
    name: 'backchannel_logout_uri',
    label: 'Back-channel logout URI',
    hint: 'Where the application is notified that a session has ended. Optional.',
    maxLength: MAX_URI_LENGTH,
  },
  {
    name: 'logo_uri',
    label: 'Logo',
    hint: 'The https address of an image for the pages of sign-in and consent, whose visitors load it. Optional.',
    maxLength: MAX_URI_LENGTH,
  },
];

/** Undefined, which changes nothing, for a form without the field. */
const isYes = (text: string | undefined) => (text === undefined ? undefined : text === 'yes');

/** @throws VALIDATION_ERROR */
function readLines(path: string, text = ''): string[] {
  const lines = text.split(/\s+/).filter((line) => line !== '');
  if (lines.length > MAX_URIS || lines.some((line) => line.length > MAX_URI_LENGTH)) {
    throw invalidFields({
      path,
      message: `must be at most ${MAX_URIS} URIs of at most ${MAX_URI_LENGTH} characters each`,
    });
  }
  return lines;
}

/** @throws VALIDATION_ERROR */
function readClient({
  name = '',
  ...form
}: Record<string, string | undefined>): Omit<ClientInput, 'isPublic'> {
  if (name !== '') requireName(name);
  return {
    name,
    redirectUris: readLines('redirect_uris', form['redirect_uris']),
    postLogoutRedirectUris: readLines('post_logout_redirect_uris', form['post_logout_redirect_uris']),
    principalKinds: (KINDS[form['kinds'] ?? ''] ?? KINDS['both'])?.kinds ?? [],
    admittedGroups: wordsIn(form['admitted_groups']) ?? [],
    groupsClaim: form['groups_claim'],
    claims: form['claims'] ?? '',
    trusted: form['trusted'] === 'yes',
    strict: isYes(form['strict']),
    device: isYes(form['device']),
    logoUri: form['logo_uri'] ?? '',
    backchannelLogoutUri: form['backchannel_logout_uri'] ?? '',
    idTokenAlg: form['id_token_alg'],
  };
}

/** The fields of the form that have another name than the client metadata. */
const FORM_FIELDS: Readonly<Record<string, string>> = { id_token_signed_response_alg: 'id_token_alg' };

/** Names the field of the form instead of the metadata or one URI in it: `redirect_uris.0` becomes `redirect_uris`. */
function failAtField(error: unknown): never {
  if (!(error instanceof AppError) || error.details === undefined) throw error;
  const details = error.details.map(({ path, message }) => {
    const [field = path, index] = path.split('.');
    return {
      path: FORM_FIELDS[field] ?? field,
      message: index === undefined ? message : `in line ${Number(index) + 1} ${message}`,
    };
  });
  throw invalidFields(...details);
}

/** The list, the page and the changes of applications. */
export async function clientsPlugin(
  fastify: FastifyTypebox,
  { console, clock, sources: { clients, keys, metadataClients, audit } }: ConsoleServices,
): Promise<void> {
  const section = 'clients';
  const find = async ({ id = '' }: Record<string, string>): Promise<ClientDocument> => {
    const found = await clients.find(id);
    if (!found) throw httpErrors.NOT_FOUND();
    return found;
  };
  const signatureOf = (client: ClientDocument): string => {
    const idTokenAlg: string = client.idTokenAlg ?? 'EdDSA';
    return keys.some(({ algorithm, use }) => algorithm === idTokenAlg && use === 'current')
      ? idTokenAlg
      : `${idTokenAlg}. Nobody can sign in: IDP_ES256_KEY is not set on the server.`;
  };
  const register = actionsOn<ClientDocument>(fastify, console, {
    path: 'clients/:id',
    section,
    find,
    returnTo: ({ id }) => `clients/${id}`,
  });
  const shown = (client: ClientDocument, secret: string | null) => ({
    title: client.name || client.id,
    note:
      secret === null
        ? 'A public application has no secret: it uses PKCE.'
        : 'The secret is shown only once. Copy it into the configuration of the application now.',
    secrets: [
      { label: 'Client ID', value: client.id },
      ...(secret === null ? [] : [{ label: 'Client secret', value: secret }]),
    ],
  });

  registerList<ClientDocument>(fastify, console, {
    path: section,
    title: 'Applications',
    links: [
      { path: 'clients/create', label: 'Create an application' },
      { path: RESOURCES, label: 'APIs' },
      ...(metadataClients ? [{ path: METADATA_CLIENTS, label: 'Metadata documents' }] : []),
    ],
    columns: [
      { label: 'Name', text: ({ name, id }) => name || id, href: ({ id }) => `clients/${id}` },
      { label: 'Redirect URIs', text: ({ redirectUris }) => redirectUris.join(' ') },
      { label: 'Who may sign in', text: (client) => KINDS[choiceOf(client)]?.label ?? null },
      // What is usual is not said.
      {
        label: 'Trusted',
        text: ({ trusted }) => (trusted ? 'yes' : null),
        csv: ({ trusted }) => (trusted ? 'yes' : 'no'),
      },
      {
        label: 'Registered by',
        text: ({ origin }) => (origin ? 'itself' : null),
        csv: ({ origin }) => (origin ? 'itself' : 'operator'),
      },
      { label: 'Last used', text: ({ lastUsedAt }) => toTimestampOrNull(lastUsedAt), kind: 'time' },
      { label: 'Created', text: ({ createdAt }) => toTimestamp(createdAt), kind: 'time' },
      { label: 'Client ID', text: ({ id }) => id, kind: 'code' },
    ],
    filters: [{ name: 'use', label: 'Use', options: UNUSED }],
    search: {
      label: 'Search',
      hint: 'Any part of a name of at least three characters, or a client ID.',
      maxLength: 254,
    },
    read: async ({ search, filters: { use }, after, limit }) =>
      search === undefined
        ? pageByUse((limit) => clients.list(after, limit), { use, limit, now: clock.now() })
        : { items: [], next: null },
    find: async ({ search, filters: { use }, limit }) =>
      (await clients.search(search, use ? MAX_READ : limit)).filter(matcherOf(use, clock.now())),
    isNamed: ({ id }, text) => id === text,
    empty: 'There are no applications yet. Create one to let it use this provider.',
  });

  registerDetail<ClientDocument>(fastify, console, {
    path: 'clients/:id',
    section,
    find,
    async view(client, root) {
      const { id, name, secretHash, previousSecretUntil, createdAt } = client;
      const facts = [
        { label: 'Redirect URIs', text: client.redirectUris.join(' ') || null },
        { label: 'Logout URIs', text: client.postLogoutRedirectUris.join(' ') || null },
        { label: 'Who may sign in', text: KINDS[choiceOf(client)]?.label ?? '' },
        { label: 'Groups that may sign in', text: client.admittedGroups?.join(', ') ?? 'all' },
        { label: 'Groups that it gets', text: client.groupsClaim ?? (client.origin ? 'none' : 'all') },
        { label: 'Claims from metadata', text: client.claims ?? null },
        { label: 'Trusted', text: client.trusted ? 'yes' : 'no' },
        { label: 'Strict', text: client.strict ? 'yes' : 'no' },
        { label: 'Security profile', text: client.profile ? 'FAPI 2.0' : null },
        { label: 'Sign-in on devices', text: client.device ? 'by a code' : null },
        { label: 'Signature of id_tokens', text: signatureOf(client) },
        { label: 'Back-channel logout URI', text: client.backchannelLogoutUri ?? null },
        { label: 'Logo', text: client.logoUri ?? null },
        { label: 'Authentication', text: methodOf(client) },
        ...(client.jwks ?? []).map((key) => ({
          label: 'Public key',
          text: [keyTypeOf(key), key.kid ?? []].flat().join(', '),
        })),
        { label: 'Registered by', text: client.origin ? 'the application itself' : null },
        { label: 'Last used', time: toTimestampOrNull(client.lastUsedAt) },
        { label: 'Ends unless used', time: toTimestampOrNull(client.expiresAt) },
        { label: 'Previous secret works until', time: toTimestampOrNull(previousSecretUntil) },
        { label: 'Created', time: toTimestamp(createdAt) },
        { label: 'Client ID', text: id, isCode: true },
      ];
      const actions = [
        { href: `${id}/update`, label: 'Change' },
        ...(secretHash === undefined ? [] : [{ href: `${id}/rotate`, label: 'Rotate the secret' }]),
        { href: `${id}/delete`, label: 'Delete', isDangerous: true },
        ...(client.backchannelLogoutUri === undefined
          ? []
          : [{ href: `../${LOGOUT_FAILURES}`, label: 'Failed logout notices' }]),
      ];
      const refused = await audit.search({ event: 'client.refused', subjects: [id], limit: LISTED_RECORDS });
      const refusals = {
        heading: 'Refused requests',
        empty: 'None lately.',
        ...tableOf(REFUSAL_COLUMNS, refused.items.map(toAuditView), root),
      };
      return { title: name || id, facts, actions, tables: [refusals] };
    },
  });

  await registerAction<object, TextForm, { client: ClientDocument; secret: string | null }>(
    fastify,
    console,
    {
      path: 'clients/create',
      section,
      title: () => 'Create an application',
      consequences: 'The application gets an ID and, unless it is public, a secret that is shown once.',
      button: 'Create the application',
      inputs: [
        ...INPUTS,
        {
          name: 'public',
          label: 'Public',
          hint: 'For an application that cannot keep a secret, like one in a browser or on a phone.',
          options: yesOrNo,
        },
      ],
      find: async () => ({}),
      run: async (_, fields, by) => {
        const input = { ...readClient(fields), isPublic: fields['public'] === 'yes' };
        return clients.create(input, operatorSource(by)).catch(failAtField);
      },
      reveal: ({ client, secret }) => shown(client, secret),
      done: 'Application created.',
      returnTo: () => section,
    },
  );

  await register<TextForm, unknown>('update', {
    title: ({ name, id }) => `Change ${name || id}`,
    consequences: 'The change applies to the next sign-in.',
    button: 'Save',
    inputs: INPUTS,
    values: (client) => ({
      name: client.name,
      redirect_uris: client.redirectUris.join('\n'),
      post_logout_redirect_uris: client.postLogoutRedirectUris.join('\n'),
      kinds: choiceOf(client),
      admitted_groups: client.admittedGroups?.join(', ') ?? '',
      groups_claim: client.groupsClaim ?? (client.origin ? 'none' : 'all'),
      claims: client.claims ?? '',
      trusted: client.trusted ? 'yes' : 'no',
      strict: client.strict ? 'yes' : 'no',
      device: client.device ? 'yes' : 'no',
      logo_uri: client.logoUri ?? '',
      backchannel_logout_uri: client.backchannelLogoutUri ?? '',
      id_token_alg: client.idTokenAlg ?? 'EdDSA',
    }),
    run: async ({ id }, fields, by) =>
      requireCurrent(await clients.update(id, readClient(fields), operatorSource(by)).catch(failAtField)),
    done: 'Saved.',
  });

  await register<TextForm, string>('rotate', {
    title: ({ name, id }) => `Rotate the secret of ${name || id}?`,
    consequences: 'The application gets a new secret, which is shown once.',
    button: 'Rotate the secret',
    inputs: [
      {
        name: 'at_once',
        label: 'The old secret',
        options: [
          { value: 'no', label: 'works for another day' },
          { value: 'yes', label: 'ends at once' },
        ],
      },
    ],
    run: async ({ id }, { at_once: atOnce }, by) =>
      requireCurrent(await clients.rotate(id, { atOnce: atOnce === 'yes' }, operatorSource(by))),
    reveal: (secret, client) => shown(client, secret),
    done: 'Secret rotated.',
  });

  await register<TextForm, unknown>('delete', {
    title: ({ name, id }) => `Delete ${name || id}?`,
    consequences:
      'This cannot be undone. Nobody can sign in to the application any more, and its tokens end.',
    button: 'Delete permanently',
    isDestructive: true,
    typed: ({ id }) => id,
    run: async ({ id }, _, by) => requireCurrent(await clients.delete(id, operatorSource(by))),
    done: 'Deleted.',
    returnTo: () => section,
  });
}
