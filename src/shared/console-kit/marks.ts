import { DAY } from '../../core/kernel/clock.js';

/**
 * How the pages of operators write times, states and identifiers: one form for all templates, which wrap a value in
 * `{{#showTime}}`, `{{#showState}}` or `{{#showId}}`.
 */

/** The states that mean something good or bad; all others are plain. */
const TONES = new Map(
  Object.entries({
    good: 'has_access active granted succeeded paid sent delivered verified confirmed done processed applied enabled trusted',
    warn: 'past_due failing pending queued unverified incomplete paused invited retrying held quarantined open',
    bad: 'canceled failed suspended disabled unpaid expired deleting unmatched refused rejected deleted bounced',
  }).flatMap(([tone, states]) => states.split(' ').map((state) => [state, tone] as const)),
);

/** Words of an API that people would not use. */
const NAMES: Record<string, string> = { none: 'Free', trialing: 'Trial' };

/** A state as a word for people. */
export const nameOfState = (state: string): string => NAMES[state] ?? sentenceCase(state);

/** `past_due` becomes `Past due`, `password-reset` `Password reset`. */
export const sentenceCase = (text: string): string => {
  const spaced = text.replaceAll(/[_.-]/g, ' ');
  return spaced.charAt(0).toUpperCase() + spaced.slice(1);
};

const toneOf = (state: string): string => TONES.get(state) ?? 'plain';

/** `2026-11-28T09:41:00Z` becomes `today, 09:41`, `yesterday, 09:41`, `21 Nov, 16:02` or `31 Oct 2025`. */
function writeTime(timestamp: string, now: string): string {
  const time = Date.parse(timestamp);
  const clock = timestamp.slice(11, 16);
  const days = Math.floor(Date.parse(now) / DAY) - Math.floor(time / DAY);
  if (days === 0) return `today, ${clock}`;
  if (days === 1) return `yesterday, ${clock}`;
  if (days === -1) return `tomorrow, ${clock}`;
  const isSameYear = timestamp.slice(0, 4) === now.slice(0, 4);
  return isSameYear ? `${SHORT.format(time)}, ${clock}` : WITH_YEAR.format(time);
}

const UTC = { timeZone: 'UTC', day: 'numeric' } as const;
const SHORT = new Intl.DateTimeFormat('en-GB', { ...UTC, month: 'short' });
const WITH_YEAR = new Intl.DateTimeFormat('en-GB', { ...UTC, month: 'short', year: 'numeric' });

/** Characters of an identifier that are shown on each side. */
const [HEAD, TAIL] = [12, 6];

/** What the clock of a zone shows, written as if it were UTC. Only this locale writes times in the order of ISO 8601. */
function clockIn(zone: string): (time: number) => string {
  const format = new Intl.DateTimeFormat('sv-SE', {
    timeZone: zone,
    dateStyle: 'short',
    timeStyle: 'medium',
  });
  return (time) => `${format.format(time).replace(' ', 'T')}Z`;
}

/** A function of Mustache. The outermost is called with the catalogue of messages, as every function of a view. */
const mark =
  (write: (text: string) => string) => () => () => (text: string, render: (text: string) => string) =>
    write(render(text).trim());

const MARKS = {
  showState: mark(
    (state) => `<span class="status" data-tone="${toneOf(state)}">${nameOfState(state)}</span>`,
  ),
  showId: mark((id) => {
    // A character reference must not be cut.
    if (id.length <= HEAD + TAIL + 2 || !/^[\w-]+$/.test(id)) return `<code class="id">${id}</code>`;
    const [head, middle, tail] = [id.slice(0, HEAD), id.slice(HEAD, -TAIL), id.slice(-TAIL)];
    return `<code class="id" title="${id}">${head}<i>${middle}</i>${tail}</code>`;
  }),
};

/** The functions of the templates. They receive escaped text. @param zone an IANA time zone */
export function marksAt(now: number, zone: string) {
  const local = clockIn(zone);
  const today = local(now);
  const exact = new Intl.DateTimeFormat('en-GB', { timeZone: zone, dateStyle: 'long', timeStyle: 'medium' });
  return {
    ...MARKS,
    showTime: mark((timestamp) => {
      const time = Date.parse(timestamp);
      const title = `${exact.format(time)} ${zone}`;
      return `<time datetime="${timestamp}" title="${title}">${writeTime(local(time), today)}</time>`;
    }),
  };
}

/** The initials of a name: `Ada Lovelace` becomes `AL`. */
export const initialsOf = (name: string): string => {
  const [first = '', ...more] = name.trim().split(/[\s.@_-]+/);
  return ((first[0] ?? '') + (more[0]?.[0] ?? '')).toUpperCase();
};
