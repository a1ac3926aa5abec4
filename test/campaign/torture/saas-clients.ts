/** The clients of saas-backend in a campaign. */
import { PASSWORD } from '../../kit/app.js';
import { claimsOf } from '../../kit/idp.js';
import { readMail } from '../../kit/mail.js';
import { refreshHonestly } from './refresh.js';
import { type Client, json, type Reply, type World } from './world.js';

const PRODUCT = 'saas-backend';

const PROBE = { rule: 'probe', kind: 'read' } as const;

/** A signed-in user. */
export interface Account {
  email: string;
  id: string;
  password: string;
}

interface Session {
  accessToken: string;
  refreshToken: string;
  /** How often all clocks had been set when it began: a jump may end it. */
  clockJumps: number;
}

export const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

let names = 0;

/** Registers a user with a new address. `null` if the campaign ends first. */
export async function register(world: World): Promise<Account | null> {
  const email = `p${++names}@example.test`;
  const reply = await world.insist(
    PRODUCT,
    () => json('POST', '/api/auth/register', { email, password: PASSWORD }),
    () => ({ rule: 'durable', key: `account ${email}`, kind: 'write', what: `register ${email}` }),
  );
  // 409: an attempt without an answer had succeeded.
  if (reply?.status !== 201 && reply?.status !== 409) return null;
  const login = await signIn(world, { email, password: PASSWORD });
  return login && { email, password: PASSWORD, id: claimsOf(login.accessToken).sub };
}

/** Signs in. The address must be registered. */
export async function signIn(
  world: World,
  { email, password }: Pick<Account, 'email' | 'password'>,
): Promise<Session | null> {
  const { clockJumps } = world;
  const reply = await world.insist(
    PRODUCT,
    () => json('POST', '/api/auth/login', { email, password }),
    () => ({ rule: 'durable', key: `account ${email}`, kind: 'read', what: `login ${email}` }),
  );
  return reply?.status === 200 ? { ...reply.body.data, clockJumps } : null;
}

/** Several clients that write and read the name in one profile. */
export async function profileLanes(world: World, writers: number, readers: number): Promise<Promise<void>[]> {
  const account = await register(world);
  if (!account) throw new Error('no user could be registered');
  const key = `name of ${account.email}`;
  let values = 0;
  const client = (isWriter: boolean) => {
    let session: Session | null = null;
    return world.lane(async () => {
      session ??= await signIn(world, account);
      if (!session) return;
      const headers = bearer(session.accessToken);
      const value = `v${++values}`;
      const read = ({ body }: Reply) => body?.data?.name ?? body?.data?.user?.name;
      const reply = isWriter
        ? await world.ask(PRODUCT, json('PATCH', '/api/user/profile', { name: value }, headers), {
            ...{ rule: 'register', key, kind: 'write', what: 'PATCH profile', value },
          })
        : await world.ask(
            PRODUCT,
            { method: 'GET', path: '/api/user/profile', headers },
            { rule: 'register', key, kind: 'read', what: 'GET profile', read },
          );
      if (reply?.status === 401) {
        recordLoss(world, session, `session of ${account.email}`, reply);
        session = null;
      }
    });
  };
  // The first value, which the readers wait for.
  const session = await signIn(world, account);
  if (!session) throw new Error('the user could not sign in');
  await world.insist(
    PRODUCT,
    () => json('PATCH', '/api/user/profile', { name: 'v0' }, bearer(session.accessToken)),
    () => ({ rule: 'register', key, kind: 'write', what: 'PATCH profile', value: 'v0' }),
  );
  return [
    ...Array.from({ length: writers }, () => client(true)),
    ...Array.from({ length: readers }, () => client(false)),
  ];
}

/** A session that a program does not accept any more, although no clock was set meanwhile. */
function recordLoss(world: World, session: Session, key: string, { body }: Reply): void {
  if (session.clockJumps !== world.clockJumps) return;
  const now = world.history.now();
  const what = 'use of a session';
  const detail = `401 ${body?.error?.code ?? ''}`;
  world.history.add({
    ...{ rule: 'honest', key, kind: 'read', what, target: 'saas', start: now, end: now, since: now },
    ...{ outcome: 'refused', detail },
  });
}

/** A client that refreshes its session, sometimes twice at the same time, and a thief who uses an old token. */
export async function refreshLane(world: World): Promise<Client> {
  const account = await register(world);
  if (!account) throw new Error('no user could be registered');
  let session: Session | null = null;
  let old: string[] = [];
  const running = world.lane(async () => {
    if (session?.clockJumps !== world.clockJumps || !session) {
      session = await signIn(world, account);
      old = [];
      if (!session) return;
    }
    const { refreshToken } = session;
    const refreshed = await refreshHonestly(world, {
      product: PRODUCT,
      key: jtiOf(refreshToken),
      request: json('POST', '/api/auth/refresh', { refreshToken }),
      read: ({ body }) => jtiOf(body.data.refreshToken),
    });
    if (!refreshed) {
      session = null;
      return;
    }
    old.push(refreshToken);
    session = { ...refreshed.body.data, clockJumps: session.clockJumps } as Session;
    if (old.length < 6) return;
    await world.calm();
    if (session.clockJumps !== world.clockJumps) return;
    // The first one reveals the theft, which ends the session.
    for (const [stolen, what] of [
      [old[0] as string, 'refresh with a stolen token'],
      [session.refreshToken, 'refresh after a theft'],
    ] as const) {
      const key = jtiOf(stolen);
      const about = { rule: 'stale-token', key, kind: 'write', what } as const;
      const { clockJumps } = world;
      const reply = await world.insist(
        PRODUCT,
        () => json('POST', '/api/auth/refresh', { refreshToken: stolen }),
        () => about,
      );
      if (!reply || clockJumps !== world.clockJumps) break;
    }
    session = null;
  });
  return { running };
}

const jtiOf = (token: string): string => claimsOf(token).jti;

/** New users, one after the other. */
export function registrationLane(world: World, accounts: Account[]): Promise<void> {
  return world.lane(async () => {
    const account = await register(world);
    if (account) accounts.push(account);
  });
}

/** Users who reset their password; each link is used at the same time with several passwords. */
export function resetLane(world: World): Promise<void> {
  return world.lane(async () => {
    const account = await register(world);
    if (!account) return;
    const { email } = account;
    await world.insist(
      PRODUCT,
      () => json('POST', '/api/auth/forgot-password', { email }),
      () => ({ ...PROBE, key: email, what: 'forgot-password' }),
    );
    const token = await linkFor(world, email);
    if (token === null) return;
    const { clockJumps } = world;
    // Several for each process: they wait for its hashing together, so most of them check the link before one uses it.
    const passwords = Array.from({ length: 10 }, (_, index) => `the sentence ${index + 1} of a user`);
    const replies = await Promise.all(
      passwords.map((password, index) =>
        world.ask(PRODUCT, json('POST', '/api/auth/reset-password', { token, password }), {
          ...{ rule: 'once', key: `reset link of ${email}`, kind: 'write', what: 'reset-password' },
          process: index % 2,
        }),
      ),
    );
    const accepted = replies.findIndex((reply) => reply?.status === 200);
    if (accepted < 0 || clockJumps !== world.clockJumps) return;
    const password = passwords[accepted] as string;
    const key = `password of ${email}`;
    const now = world.history.now();
    world.history.add({
      ...{
        rule: 'durable',
        key,
        kind: 'write',
        what: 'reset-password',
        target: 'saas',
        start: now,
        end: now,
      },
      ...{ outcome: 'ok', detail: '200' },
    });
    await world.insist(
      PRODUCT,
      () => json('POST', '/api/auth/login', { email, password }),
      () => ({ rule: 'durable', key, kind: 'read', what: `login ${email} with the new password` }),
    );
  });
}

/** The token of the link that was mailed to an address; null when none arrives. */
async function linkFor(world: World, email: string): Promise<string | null> {
  const until = world.history.now() + 5000;
  while (world.history.now() < until) {
    for (const mail of world.mails.mails) {
      if (!mail.to.includes(email)) continue;
      const token = /reset-password\?token=(\S+)/.exec(readMail(mail).text)?.[1];
      if (token !== undefined) return token;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return null;
}
