import { Type } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import type { Page } from '../../core/storage/collection.js';
import { type Problem, sentenceOf } from '../../shared/console-kit/attention.js';
import { Done, rootOf } from '../../shared/console-kit/console.js';
import { registerDetail } from '../../shared/console-kit/details.js';
import { figureViews, keyFigureOf } from '../../shared/console-kit/key-figures.js';
import { withSeparators, writeEstimate } from '../../shared/console-kit/lists.js';
import {
  DEFAULT_PERIOD,
  type Period,
  PeriodQuery,
  periodLinks,
  periodOf,
} from '../../shared/console-kit/periods.js';
import { type Column, tableOf } from '../../shared/console-kit/tables.js';
import { LOGOUT_FAILURES } from './logout-failures.js';
import { COLUMNS } from './principals.js';
import type { ConsoleServices, ConsoleSources } from './sources.js';
import { MAX_READ, matcherOf } from './uses.js';

const NEWEST = 8;

const ROTATION = {
  current: 'Signs the id_tokens of this algorithm.',
  next: 'Published, but does not sign yet.',
  previous: 'Does not sign any more; tokens that it has signed can still be verified.',
} as const;

/** The start page with sign-ins, and the page of the keys. */
export async function overviewPlugin(fastify: FastifyTypebox, services: ConsoleServices): Promise<void> {
  const { console, sources } = services;

  fastify.get(
    '/',
    { config: console.config, schema: { querystring: Type.Object({ done: Done, period: PeriodQuery }) } },
    async (request, reply) => {
      const root = rootOf(request);
      const { period: name = DEFAULT_PERIOD } = request.query;
      const period = periodOf(name, services.clock);
      const [{ people, agents, clients, signIns }, attention, newest] = await Promise.all([
        readFigures(services, period),
        attentionTo(services),
        sources.principals.newest(NEWEST),
      ]);
      const { renderPlot } = await import('../../shared/console-kit/plots.js');
      const plot = renderPlot({
        label: 'Sign-ins',
        unit: 'attempts',
        days: period.spans.slice(period.count),
        shape: 'stacked',
        isSummable: true,
        series: Object.entries(signIns).map(([name, all]) => ({ name, values: all.slice(period.count) })),
        wide: { before: [] },
      });
      const figures = [
        { label: 'People', value: people, path: 'principals?kind=human' },
        { label: 'Agents', value: agents, path: 'principals?kind=agent' },
        { label: 'Applications', value: clients, path: 'clients' },
        signInFigure('Sign-ins', 'succeeded', signIns.succeeded),
        signInFigure('Failed sign-ins', 'failed', signIns.failed),
      ].filter((figure) => figure !== null);
      return console.send(request, reply, {
        template: 'console-overview',
        section: '',
        view: {
          title: 'Overview',
          periods: periodLinks(name),
          keyFigures: figureViews(figures, root),
          main: {
            id: 'sign-ins',
            heading: 'Sign-ins',
            markup: console.renderPart('_console-plot', { ...plot }),
            definition: `Sign-ins and failed attempts of the last ${period.label} in UTC.`,
          },
          attention: attention.map((problem) => ({
            text: console.textOf(sentenceOf(problem)),
            href: root + problem.path,
          })),
          newest: {
            tableLabel: 'Newest people and agents',
            allHref: `${root}principals`,
            all: 'All people and agents',
            empty: 'Nobody yet. Create an agent or invite a person.',
            ...tableOf(COLUMNS, newest, root),
          },
          plots: [],
          counts: [],
          duplicates: false,
          note: false,
        },
      });
    },
  );

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

const signInFigure = (label: string, outcome: 'succeeded' | 'failed', values: readonly (number | null)[]) =>
  keyFigureOf({
    name: label.toLowerCase().replace(' ', '-'),
    label,
    isGoodUp: outcome === 'succeeded',
    isSummable: true,
    values,
    path: `audit?event=login.${outcome}`,
  });

/** The variable of the current key of each algorithm. */
const VARIABLES = { EdDSA: 'IDP_ED25519_SEED', ES256: 'IDP_ES256_KEY' };

function nextSteps(keys: ConsoleSources['keys']) {
  return Object.entries(VARIABLES).flatMap(([algorithm, name]) => {
    const uses = keys.filter((key) => key.algorithm === algorithm).map(({ use }) => use);
    const label = `What a rotation of the ${algorithm} key does next`;
    return uses.length === 0 ? [] : [{ label, text: nextStep(name, uses) }];
  });
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

/** How many there are, and the sign-ins of the period and of as much time before. */
async function readFigures({ sources }: ConsoleServices, { days, fold }: Period) {
  const [people, agents, clients, counts] = await Promise.all([
    sources.principals.count({ kind: 'human', state: 'active' }, MAX_READ),
    sources.principals.count({ kind: 'agent', state: 'active' }, MAX_READ),
    sources.clients.estimate(),
    sources.signInDays.read(days),
  ]);
  const valuesOf = (outcome: 'succeeded' | 'failed') =>
    fold(
      counts.map((one) => one?.[outcome] ?? null),
      true,
    );
  const signIns = { succeeded: valuesOf('succeeded'), failed: valuesOf('failed') };
  return { people: bounded(people), agents: bounded(agents), clients: writeEstimate(clients), signIns };
}

const bounded = (count: number) => `${withSeparators(count)}${count >= MAX_READ ? '+' : ''}`;

/** What the operator should look at, with the list that shows it. */
export async function attentionTo({
  sources,
  clock,
}: Pick<ConsoleServices, 'sources' | 'clock'>): Promise<Problem[]> {
  const now = clock.now();
  const [failures, expired, agents, clients] = await Promise.all([
    sources.logoutFailures.count(MAX_READ),
    sources.principals.count({ state: 'invited', hasExpiredLink: true }, MAX_READ),
    sources.principals.list({ kind: 'agent', state: 'active', limit: MAX_READ }),
    sources.clients.list(undefined, MAX_READ),
  ]);
  const [unused, ending] = [matcherOf('unused', now), matcherOf('ending', now)];
  const rotated = sources.keys.filter(({ use }) => use !== 'current').length;
  const entries = [
    { name: 'logout-failures', ...upTo(failures), path: LOGOUT_FAILURES },
    { name: 'expired-invitations', ...upTo(expired), path: 'invitations?state=expired' },
    { name: 'unused-agents', ...countIn(agents, unused), path: 'principals?use=unused' },
    { name: 'ending-agents', ...countIn(agents, ending), path: 'principals?use=ending' },
    { name: 'unused-applications', ...countIn(clients, unused), path: 'clients?use=unused' },
    { name: 'key-rotation', count: rotated, path: 'keys' },
  ];
  return entries.filter(({ count }) => count > 0);
}

/** Of what is counted up to a limit. */
const upTo = (count: number) => ({ count, isPart: count >= MAX_READ });

/** Of a list that was read up to a limit. */
const countIn = <T>({ items, next }: Page<T>, matches: (item: T) => boolean) => ({
  count: items.filter(matches).length,
  isPart: next !== null,
});
