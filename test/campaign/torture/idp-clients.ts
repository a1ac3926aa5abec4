/** The clients of idp in a campaign. */
import { basic } from '../../kit/app.js';
import {
  ADMIN_TOKEN,
  authorizePath,
  CALLBACK,
  codeIn,
  type RegisteredClient,
  redemption,
  refreshing,
} from '../../kit/idp.js';
import { refreshHonestly } from './refresh.js';
import { type Client, form, json, type Reply, type World } from './world.js';

const PRODUCT = 'idp';

const PROBE = { rule: 'probe', kind: 'write' } as const;

const OPERATOR = { authorization: `Bearer ${ADMIN_TOKEN}` };

interface Agent {
  sub: string;
  handle: string;
  password: string;
}

let names = 0;

/** Creates an agent. `null` if the response with its password was lost, or if the campaign ends first. */
async function mint(world: World): Promise<Agent | null> {
  const handle = `a${++names}@agents.example.test`;
  const reply = await world.insist(
    PRODUCT,
    () => json('POST', '/v1/agents', { handle }, OPERATOR),
    () => ({ rule: 'once', key: `handle ${handle}`, kind: 'write', what: `mint ${handle}` }),
  );
  return reply?.status === 201 ? reply.body : null;
}

/** A new agent, for clients that need one. */
async function mintOne(world: World): Promise<Agent> {
  for (let tries = 0; tries < 10; tries++) {
    const agent = await mint(world);
    if (agent) return agent;
  }
  throw new Error('no agent could be created');
}

async function createClient(world: World, isPublic = false): Promise<RegisteredClient> {
  const reply = await world.insist(
    PRODUCT,
    () => json('POST', '/v1/clients', { name: 'App', redirect_uris: [CALLBACK], public: isPublic }, OPERATOR),
    () => ({ ...PROBE, key: 'clients', what: 'create a client' }),
  );
  if (reply?.status !== 201) throw new Error('no client could be created');
  return { id: reply.body.client_id, secret: reply.body.client_secret, redirectUri: CALLBACK };
}

/** Requests an authorization code for an agent. `null` if the campaign ends first. */
async function authorize(world: World, client: RegisteredClient, agent: Agent): Promise<string | null> {
  const path = authorizePath(client, { scope: 'openid offline_access', prompt: 'consent' });
  const headers = { authorization: basic(agent.handle, agent.password) };
  const reply = await world.insist(
    PRODUCT,
    () => ({ method: 'GET', path, headers }),
    () => ({
      rule: 'durable',
      key: `agent ${agent.handle}`,
      kind: 'read',
      what: `authorize ${agent.handle}`,
    }),
  );
  return reply?.status === 302 ? codeIn(String(reply.headers['location'])) : null;
}

/** Codes, each redeemed at two processes at the same time, and once more afterwards. */
export async function codeLane(world: World): Promise<Client> {
  const client = await createClient(world);
  const agent = await mintOne(world);
  const running = world.lane(async () => {
    const code = await authorize(world, client, agent);
    if (code === null) return;
    const about = { rule: 'once', key: `code ${code}`, kind: 'write', what: 'redeem' } as const;
    const redeem = (process: number) =>
      world.ask(PRODUCT, form('/token', redemption(client, code)), { ...about, process });
    await Promise.all([redeem(0), redeem(1)]);
    await redeem(world.dice.whole(4));
  });
  return { running };
}

interface Tokens {
  access_token: string;
  refresh_token: string;
}

/** An application that refreshes its tokens, sometimes twice at the same time, and a thief who uses an old token. */
export async function familyLane(world: World): Promise<Client> {
  // The tokens of a client that authenticates do not rotate.
  const client = await createClient(world, true);
  const agent = await mintOne(world);
  let tokens: Tokens | null = null;
  let clockJumps = 0;
  let old: string[] = [];
  const refresh = (token: string) => form('/token', refreshing(client, token));
  const running = world.lane(async () => {
    if (!tokens || clockJumps !== world.clockJumps) {
      clockJumps = world.clockJumps;
      tokens = await begin();
      old = [];
      if (!tokens) return;
    }
    const { refresh_token: key } = tokens;
    const read = ({ body }: Reply) => body.refresh_token;
    const refreshed = await refreshHonestly(world, { product: PRODUCT, key, request: refresh(key), read });
    if (!refreshed) {
      tokens = null;
      return;
    }
    old.push(key);
    tokens = refreshed.body as Tokens;
    await useAccessToken(world, tokens.access_token);
    if (old.length < 6) return;
    await world.calm();
    for (const stolen of [old[0] as string, tokens.refresh_token]) {
      const what = stolen === old[0] ? 'refresh with a stolen token' : 'refresh after a theft';
      const about = { rule: 'stale-token', key: stolen, kind: 'write', what } as const;
      await world.insist(
        PRODUCT,
        () => refresh(stolen),
        () => about,
      );
    }
    tokens = null;
  });
  return { running };

  /** A code whose answer was lost counts as used, so that the application begins again. */
  async function begin(): Promise<Tokens | null> {
    const code = await authorize(world, client, agent);
    if (code === null) return null;
    const reply = await world.ask(PRODUCT, form('/token', redemption(client, code)), {
      ...{ rule: 'once', key: `code ${code}`, kind: 'write', what: 'redeem' },
    });
    return reply?.status === 200 ? reply.body : null;
  }
}

async function useAccessToken(world: World, token: string): Promise<void> {
  const headers = { authorization: `Bearer ${token}` };
  const since = world.history.now();
  const about = {
    rule: 'honest',
    key: `access token ${since}`,
    kind: 'read',
    what: 'userinfo',
    since,
  } as const;
  await world.ask(PRODUCT, { method: 'GET', path: '/userinfo', headers }, about);
}

/** New agents: two requests for each handle, of which one succeeds; then the agent is found. */
export function mintLane(world: World): Promise<void> {
  return world.lane(async () => {
    const handle = `m${++names}@agents.example.test`;
    const about = { rule: 'once', key: `handle ${handle}`, kind: 'write', what: `mint ${handle}` } as const;
    const attempt = (process: number) =>
      world.ask(PRODUCT, json('POST', '/v1/agents', { handle }, OPERATOR), { ...about, process });
    const minted = (await Promise.all([attempt(0), attempt(1)])).find((reply) => reply?.status === 201);
    if (!minted) return;
    const { sub } = minted.body;
    const now = world.history.now();
    const key = `agent ${handle}`;
    world.history.add({
      ...{ rule: 'durable', key, kind: 'write', what: `mint ${handle}`, target: 'idp', start: now, end: now },
      ...{ outcome: 'ok', detail: '201' },
    });
    await world.ask(
      PRODUCT,
      { method: 'GET', path: `/v1/principals/${sub}`, headers: OPERATOR },
      { rule: 'durable', key, kind: 'read', what: `read ${handle}` },
    );
  });
}

/** The state of one agent: a client that disables and enables it, and clients that read it. */
export async function stateLanes(world: World, readers: number): Promise<Promise<void>[]> {
  const { sub, handle } = await mintOne(world);
  const key = `state of ${handle}`;
  const path = `/v1/principals/${sub}`;
  const about = { rule: 'register', key } as const;
  const write = (verb: 'disable' | 'enable') => ({
    request: { method: 'POST', path: `${path}/${verb}`, headers: OPERATOR },
    about: { ...about, kind: 'write', what: verb, value: verb === 'enable' ? 'active' : 'disabled' } as const,
  });
  const first = write('enable');
  await world.insist(
    PRODUCT,
    () => first.request,
    () => first.about,
  );
  let isEnabled = true;
  const writer = world.lane(async () => {
    isEnabled = !isEnabled;
    const { request, about } = write(isEnabled ? 'enable' : 'disable');
    await world.ask(PRODUCT, request, about);
  });
  const reader = () =>
    world.lane(async () => {
      const read = ({ body }: Reply) => body.state;
      await world.ask(
        PRODUCT,
        { method: 'GET', path, headers: OPERATOR },
        {
          ...{ ...about, kind: 'read', what: 'read state', read },
        },
      );
    });
  return [writer, ...Array.from({ length: readers }, reader)];
}
