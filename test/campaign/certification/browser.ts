import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Agent, Page } from '../../kit/agent.js';
import { compiled } from '../../kit/process.js';

/**
 * Carries out the browser steps of docs/explain/certification.md on our pages, as strictly as the suite's own browser:
 * a missing address or element fails the module, unless it is marked optional.
 */

type Command = [name: string, by: string, target: string, ...rest: (string | number)[]];

interface Task {
  task: string;
  match: string;
  optional?: boolean;
  commands: Command[];
}

interface Browser {
  browser: { match: string; tasks: Task[] }[];
}

interface Configuration extends Browser {
  /** Replacements by single modules. */
  override: Record<string, Browser>;
}

export interface Walk {
  page: Page;
  /** The number of submitted forms. */
  forms: number;
  /** The screenshots that the suite keeps for manual review. */
  screenshot: Page | undefined;
}

/** The addresses in the documentation, and the actual ones of the test. */
interface Place {
  origin: string;
  handle: string;
  password: string;
}

/** Runs the steps of this module of a plan, from the first page at `url`. */
export function walker(module: string, agent: Agent, place: Place) {
  const { browser, override } = documented(place);
  const entries = override[module]?.browser ?? browser;

  return async (url: string, first: Page): Promise<Walk> => {
    const entry = entries.find(({ match }) => isLike(match, url));
    if (!entry) throw new Error(`the suite would ask a person to open ${url}`);
    const walk: Walk = { page: first, forms: 0, screenshot: undefined };
    for (const task of entry.tasks) await perform(task, walk);
    return walk;
  };

  async function perform({ task, match, optional, commands }: Task, walk: Walk): Promise<void> {
    const { location } = walk.page;
    const here = location ?? walk.page.url;
    if (!isLike(match, here)) {
      if (optional) return;
      throw new Error(`«${task}» at ${here}`);
    }
    // A page of the suite itself, which this test does not serve.
    if (location !== undefined) return;
    const typed: Record<string, string> = {};
    for (const [name, by, target, ...rest] of commands) {
      const found = find(walk.page, by, target);
      if (!found && rest.at(-1) === 'optional') continue;
      if (!found) throw new Error(`«${task}»: no ${target} at ${here}`);
      if (name === 'text') typed[found] = String(rest[0]);
      if (name === 'wait') keep(walk, rest, task);
      if (name !== 'click') continue;
      walk.page = await agent.submit(walk.page, typed);
      walk.forms++;
    }
  }
}

/** The other arguments of `wait` are a time limit, a text, and an action. */
function keep(walk: Walk, [, text = '', action]: (string | number)[], task: string): void {
  if (!new RegExp(String(text)).test(walk.page.body)) throw new Error(`«${task}»: no ${text} on the page`);
  if (String(action).startsWith('update-image-placeholder')) walk.screenshot = walk.page;
}

function documented({ origin, handle, password }: Place): Configuration {
  const page = readFileSync(join(compiled('.'), '../docs/explain/certification.md'), 'utf8');
  const json = /```json\n([\s\S]*?)```/.exec(page)?.[1] ?? '';
  const here = json
    .replaceAll('https://id.example.com', origin)
    .replaceAll('person@example.com', handle)
    .replaceAll('the password', password);
  return JSON.parse(here);
}

/** Matches addresses like the suite: `*` is a wildcard, everything else is literal. */
function isLike(pattern: string, url: string): boolean {
  const parts = pattern.split('*').map((part) => part.replaceAll(/[\\^$.|?+()[\]{}]/g, '\\$&'));
  return new RegExp(`^${parts.join('.*')}$`, 's').test(url);
}

/** The name of the field with this ID, or a non-empty string for an element without a name. */
function find({ body }: Page, by: string, target: string): string | undefined {
  if (by === 'id') return new RegExp(`<input\\b[^>]*\\bid="${target}"[^>]*\\bname="(\\w+)"`).exec(body)?.[1];
  if (by !== 'css') throw new Error(`select by id or css, not by ${by}`);
  const descendants = target.split(' ').map((tag) => `<${tag}\\b`);
  return new RegExp(descendants.join('[\\s\\S]*?')).exec(body)?.[0];
}
