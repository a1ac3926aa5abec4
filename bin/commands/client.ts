import { parseList } from '../../src/config/options.js';
import { ON_THE_HOST } from '../../src/idp/provisioning-administration.js';
import { KINDS, type Kind } from '../../src/provisioning/schemas.js';
import { clientView } from '../../src/provisioning/views.js';
import { type Call, type Command, type OptionDeclaration, UsageError } from '../command.js';
import { nameIn } from '../name.js';
import { answer, answerList, beginProvisioning, withProvisioning } from '../store/provisioning.js';
import { fail } from '../terminal.js';

const DESCRIPTION: Record<string, OptionDeclaration> = {
  name: { value: '<text>', doc: 'what people read when they sign in there' },
  'post-logout-uris': {
    value: '<uris>',
    doc: 'where people may return to from a logout, with commas between',
  },
  kinds: { value: '<kinds>', doc: 'who may sign in there: human, agent or both (both)' },
};

const create: Command = {
  name: 'client create',
  takes: ['<redirect-uris>'],
  summary: 'registers an application and shows its secret once',
  about: 'Several redirect URIs have commas between them.',
  options: {
    ...DESCRIPTION,
    public: { doc: 'it cannot keep a secret: it gets none, and PKCE is required' },
    trusted: { doc: 'people who are signed in already are not asked for their consent' },
  },
  examples: [
    'client create https://app.example.com/callback --name "My app"',
    'client create http://127.0.0.1/callback --public --kinds agent',
  ],
  run: createClient,
};

const list: Command = {
  name: 'client list',
  summary: 'lists all applications',
  examples: ['client list', 'client list --json'],
  run: listClients,
};

const update: Command = {
  name: 'client update',
  takes: ['<client-id>'],
  summary: 'changes what is named, and leaves the rest as it is',
  options: {
    ...DESCRIPTION,
    'redirect-uris': { value: '<uris>', doc: 'instead of those it has, with commas between' },
    trusted: {
      value: '<yes|no>',
      doc: 'whether people who are signed in already are asked for their consent',
    },
  },
  examples: ['client update cid_… --name "My app" --trusted yes'],
  run: updateClient,
};

const rotate: Command = {
  name: 'client rotate',
  takes: ['<client-id>'],
  summary: 'shows a new secret once; the old one works for another 24 hours',
  options: { 'at-once': { doc: 'the old one ends now: it has become known' } },
  examples: ['client rotate cid_…', 'client rotate cid_… --at-once'],
  run: rotateClient,
};

const remove: Command = {
  name: 'client delete',
  takes: ['<client-id>'],
  summary: 'removes an application: nobody signs in there any more, and its tokens end',
  examples: ['client delete cid_…'],
  run: deleteClient,
};

export const commands = [create, list, update, rotate, remove];

const ONCE = 'The secret is shown here and never again.';

async function createClient(call: Call): Promise<void> {
  const [redirectUris = ''] = call.args;
  const input = {
    name: '',
    ...nameIn(call, create),
    redirectUris: parseList(redirectUris),
    postLogoutRedirectUris: parseList(call.text('post-logout-uris') ?? ''),
    isPublic: call.isSet('public'),
    principalKinds: readKinds(call, create) ?? [...KINDS],
    trusted: call.isSet('trusted'),
  };
  await beginProvisioning(call, async ({ clients }) => {
    const { client, secret } = await clients.create(input, ON_THE_HOST);
    if (secret === null) return answer(call, clientView(client));
    answer(call, { ...clientView(client), client_secret: secret }, ONCE);
  });
}

function listClients(call: Call): Promise<void> {
  return withProvisioning(call, async ({ clients }) => {
    const found: ReturnType<typeof clientView>[] = [];
    let after: string | undefined;
    do {
      const { items, next } = await clients.list(after);
      found.push(...items.map(clientView));
      after = next ?? undefined;
    } while (after !== undefined);
    answerList(call, 'clients', found, ['client_id', 'client_name', 'redirect_uris']);
  });
}

async function updateClient(call: Call): Promise<void> {
  const [clientId = ''] = call.args;
  const [redirectUris, postLogoutUris, trusted] = ['redirect-uris', 'post-logout-uris', 'trusted'].map(
    (option) => call.text(option),
  );
  const principalKinds = readKinds(call, update);
  if (trusted !== undefined && trusted !== 'yes' && trusted !== 'no') {
    throw new UsageError(`--trusted takes yes or no, not '${trusted}'.`, update);
  }
  const change = {
    ...nameIn(call, update),
    ...(redirectUris !== undefined && { redirectUris: parseList(redirectUris) }),
    ...(postLogoutUris !== undefined && { postLogoutRedirectUris: parseList(postLogoutUris) }),
    ...(principalKinds && { principalKinds }),
    ...(trusted !== undefined && { trusted: trusted === 'yes' }),
  };
  if (Object.keys(change).length === 0)
    throw new UsageError('nothing to change is named, like --name "My app".', update);
  await withProvisioning(call, async ({ clients }) => {
    answer(call, clientView((await clients.update(clientId, change, ON_THE_HOST)) ?? unknown(clientId)));
  });
}

function rotateClient(call: Call): Promise<void> {
  const [clientId = ''] = call.args;
  return withProvisioning(call, async ({ clients }) => {
    const client = (await clients.find(clientId)) ?? unknown(clientId);
    if (client.secretHash === undefined) fail(1, `${clientId} is public: it has no secret.`);
    const secret = await clients.rotate(clientId, { atOnce: call.isSet('at-once') }, ON_THE_HOST);
    if (secret === null) fail(1, `Somebody else is changing ${clientId}. Look at it and try again.`);
    answer(call, { client_id: clientId, client_secret: secret }, ONCE);
  });
}

function deleteClient(call: Call): Promise<void> {
  const [clientId = ''] = call.args;
  return withProvisioning(call, async ({ clients }) => {
    answer(call, clientView((await clients.delete(clientId, ON_THE_HOST)) ?? unknown(clientId)));
  });
}

const unknown = (clientId: string): never => fail(1, `There is no client ${clientId}.`);

/** @throws UsageError */
function readKinds(call: Call, command: Command): Kind[] | undefined {
  const text = call.text('kinds');
  if (text === undefined) return undefined;
  const kinds = text === 'both' ? [...KINDS] : parseList(text);
  if (kinds.length === 0 || !kinds.every((kind): kind is Kind => KINDS.some((known) => known === kind))) {
    throw new UsageError(`--kinds takes human, agent or both, not '${text}'.`, command);
  }
  return kinds;
}
