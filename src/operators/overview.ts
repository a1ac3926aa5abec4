import { Type } from 'typebox';
import { type Console, Done, rootOf } from '../console/console.js';
import { factsOf } from '../console/facts.js';
import { type Column, tableOf } from '../console/lists.js';
import { toTimestamp } from '../http/schemas.js';
import type { Scope } from '../http/scope.js';
import { type Clock, DAY } from '../kernel/clock.js';
import type { AuditRecord } from '../ops/audit.js';
import type { Estimate } from '../storage/collection.js';
import type { ConsoleSources } from './sources.js';

const SHOWN_DAYS = 30;

/** Records read for the sign-ins, which bounds the work of the page. */
const MAX_RECORDS = 10_000;

interface Day {
  date: string;
  succeeded: number;
  failed: number;
}

const ROTATION = {
  current: 'Signs all tokens. Its successor is configured with IDP_ED25519_SEED_NEXT.',
  next: 'Published, but does not sign yet. When it becomes IDP_ED25519_SEED, it signs.',
  previous: 'Does not sign any more; tokens that it has signed can still be verified.',
} as const;

/** The start page with sign-ins, and the page of the keys. */
export async function overviewPlugin(
  scope: Scope,
  { console, sources, clock }: { console: Console; sources: ConsoleSources; clock: Clock },
): Promise<void> {
  const querystring = Type.Object({ done: Done });

  scope.get('/', { config: console.config, schema: { querystring } }, async (request, reply) => {
    const [principals, clients, days] = await Promise.all([
      sources.principals.estimate(),
      sources.clients.estimate(),
      readSignIns(sources, clock.now()),
    ]);
    const columns = [
      { label: 'Day', text: ({ date }: Day) => date },
      { label: 'Sign-ins', text: ({ succeeded }: Day) => succeeded, kind: 'number' },
      { label: 'Failed', text: ({ failed }: Day) => failed, kind: 'number' },
    ] as const;
    return console.send(request, reply, {
      template: 'console-detail',
      section: '',
      view: {
        title: 'Overview',
        facts: factsOf([
          { label: 'People and agents', text: written(principals) },
          { label: 'Applications', text: written(clients) },
        ]),
        actions: [],
        tables: [
          {
            id: 'sign-ins',
            heading: 'Sign-ins by day',
            tableLabel: 'Sign-ins by day',
            empty: `Nobody has signed in during the last ${SHOWN_DAYS} days.`,
            note: `The last ${SHOWN_DAYS} days, as far as the latest ${MAX_RECORDS.toLocaleString('en-US')} audit records reach.`,
            ...tableOf(columns, days, rootOf(request)),
          },
        ],
      },
    });
  });

  scope.get('/keys', { config: console.config, schema: { querystring } }, async (request, reply) => {
    const columns: Column<ConsoleSources['keys'][number]>[] = [
      { label: 'Use', text: ({ use }) => use, kind: 'status' },
      { label: 'Key ID', text: ({ id }) => id, kind: 'code' },
      { label: 'What it does', text: ({ use }) => ROTATION[use] },
    ];
    return console.send(request, reply, {
      template: 'console-detail',
      section: 'keys',
      view: {
        title: 'Keys',
        facts: factsOf([{ label: 'What a rotation does next', text: nextStep(sources.keys) }]),
        actions: [],
        tables: [
          {
            id: 'keys',
            heading: 'Published keys',
            tableLabel: 'Published keys',
            empty: '',
            note: 'Keys are configured on the host; the console shows no private key.',
            ...tableOf(columns, sources.keys, rootOf(request)),
          },
        ],
      },
    });
  });
}

function nextStep(keys: ConsoleSources['keys']): string {
  const has = (wanted: string) => keys.some(({ use }) => use === wanted);
  if (has('next')) {
    return 'Once every process has published the next key for ten minutes, make it IDP_ED25519_SEED, and the current one IDP_ED25519_SEED_PREVIOUS.';
  }
  if (has('previous')) return 'A day after the rotation, unset IDP_ED25519_SEED_PREVIOUS.';
  return 'No rotation is in progress. It begins with a new key in IDP_ED25519_SEED_NEXT.';
}

/** The sign-ins of the last days that have any, the newest first. */
async function readSignIns({ audit }: Pick<ConsoleSources, 'audit'>, now: number): Promise<Day[]> {
  const from = Math.floor(now / DAY) * DAY - (SHOWN_DAYS - 1) * DAY;
  const { items } = await audit.search({ event: 'login.', from, limit: MAX_RECORDS });
  const days = new Map<string, Day>();
  for (const record of items) {
    const date = toTimestamp(record.at).slice(0, 10);
    const day = days.get(date) ?? { date, succeeded: 0, failed: 0 };
    days.set(date, add(day, record));
  }
  return [...days.values()];
}

function add(day: Day, { event, count = 1 }: AuditRecord): Day {
  const isFailure = event === 'login.failed';
  return isFailure ? { ...day, failed: day.failed + count } : { ...day, succeeded: day.succeeded + count };
}

const written = ({ count, isExact }: Estimate): string =>
  `${isExact ? '' : 'about '}${count.toLocaleString('en-US')}`;
