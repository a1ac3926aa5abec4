import type { FastifyTypebox } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { lastDays } from '../../core/kernel/clock.js';
import { registerDetail } from '../../shared/console-kit/details.js';
import { type Column, tableOf, writeEstimate } from '../../shared/console-kit/lists.js';
import type { TimeSeries } from '../../shared/console-kit/plots.js';
import { LOGOUT_FAILURES } from './logout-failures.js';
import type { ConsoleServices, ConsoleSources } from './sources.js';

const SHOWN_DAYS = 30;

/** Records read for the sign-ins, which bounds the work of the page. */
const MAX_RECORDS = 10_000;

/** Failed logout notices that are counted. */
const MAX_FAILURES = 1000;

const ROTATION = {
  current: 'Signs the id_tokens of this algorithm.',
  next: 'Published, but does not sign yet.',
  previous: 'Does not sign any more; tokens that it has signed can still be verified.',
} as const;

/** The start page with sign-ins, and the page of the keys. */
export async function overviewPlugin(fastify: FastifyTypebox, services: ConsoleServices): Promise<void> {
  const { console, sources } = services;

  registerDetail(fastify, console, {
    path: '',
    section: '',
    find: () =>
      Promise.all([
        sources.principals.estimate(),
        sources.clients.estimate(),
        sources.logoutFailures.count(MAX_FAILURES),
        readSignIns(services),
      ]),
    async view([principals, clients, failures, signIns], root) {
      const { renderPlot } = await import('../../shared/console-kit/plots.js');
      const counted = `${failures}${failures === MAX_FAILURES ? ' or more' : ''}`;
      return {
        title: 'Overview',
        facts: [
          { label: 'People and agents', text: writeEstimate(principals) },
          { label: 'Applications', text: writeEstimate(clients) },
          { label: 'Failed logout notices', text: failures === 0 ? null : counted },
        ],
        actions:
          failures === 0 ? [] : [{ href: root + LOGOUT_FAILURES, label: 'See the failed logout notices' }],
        plots: [
          {
            id: 'sign-ins',
            heading: 'Sign-ins by day',
            markup: console.renderPart('_console-plot', { ...renderPlot(signIns) }),
            definition: `Sign-ins and failed attempts of the last ${SHOWN_DAYS} days in UTC, as far as the latest ${MAX_RECORDS.toLocaleString('en-US')} audit records reach.`,
          },
        ],
      };
    },
  });

  const columns: Column<ConsoleSources['keys'][number]>[] = [
    { label: 'Use', text: ({ use }) => use, kind: 'status' },
    { label: 'Algorithm', text: ({ algorithm }) => algorithm },
    { label: 'Key ID', text: ({ id }) => id, kind: 'code' },
    { label: 'What it does', text: ({ use }) => ROTATION[use] },
  ];
  registerDetail(fastify, console, {
    path: 'keys',
    section: 'keys',
    find: async () => sources.keys,
    view: (keys, root) => ({
      title: 'Keys',
      facts: nextSteps(keys),
      tables: [
        {
          heading: 'Published keys',
          note: 'Keys are configured on the host; the console shows no private key.',
          ...tableOf(columns, keys, root),
        },
      ],
    }),
  });
}

/** The variable of the current key of each algorithm. */
const VARIABLES: Readonly<Record<string, string>> = { EdDSA: 'IDP_ED25519_SEED', ES256: 'IDP_ES256_KEY' };

function nextSteps(keys: ConsoleSources['keys']) {
  const algorithms = [...new Set(keys.map(({ algorithm }) => algorithm))];
  return algorithms.map((algorithm) => ({
    label: `What a rotation of the ${algorithm} key does next`,
    text: nextStep(
      VARIABLES[algorithm] ?? '',
      keys.filter((key) => key.algorithm === algorithm).map(({ use }) => use),
    ),
  }));
}

/** @param name the variable of the current key */
function nextStep(name: string, uses: readonly string[]): string {
  if (uses.includes('next')) {
    const current = uses.includes('current') ? `, and the current one ${name}_PREVIOUS` : '';
    return `Once every process has published the next key for ten minutes, make it ${name}${current}.`;
  }
  if (uses.includes('previous')) return `A day after the rotation, unset ${name}_PREVIOUS.`;
  return `No rotation is in progress. It begins with a new key in ${name}_NEXT.`;
}

/** Days before the oldest record are unknown, as are those that were not read completely. */
async function readSignIns({ sources: { audit }, clock }: ConsoleServices): Promise<TimeSeries> {
  const days = lastDays(clock, SHOWN_DAYS);
  const [first = ''] = days;
  const [oldest, { items, next, searchedUntil }] = await Promise.all([
    audit.since(),
    audit.search({ event: 'login.', from: Date.parse(first), limit: MAX_RECORDS }),
  ]);
  const dayOf = ({ at }: { at: number }) => toTimestamp(at).slice(0, 10);
  const unread = next === null ? undefined : (searchedUntil ?? items.at(-1)?.at);
  const isKnown = (day: string): boolean =>
    oldest !== null && day >= dayOf({ at: oldest }) && (unread === undefined || day > dayOf({ at: unread }));
  const counts = new Map(days.filter(isKnown).map((day) => [day, { succeeded: 0, failed: 0 }]));
  for (const record of items) {
    const day = counts.get(dayOf(record));
    if (day) day[record.event === 'login.failed' ? 'failed' : 'succeeded'] += record.count ?? 1;
  }
  const valuesOf = (outcome: 'succeeded' | 'failed') => days.map((day) => counts.get(day)?.[outcome] ?? null);
  return {
    label: 'Sign-ins',
    unit: 'attempts',
    days,
    shape: 'stacked',
    isSummable: true,
    series: [
      { name: 'succeeded', values: valuesOf('succeeded') },
      { name: 'failed', values: valuesOf('failed') },
    ],
  };
}
