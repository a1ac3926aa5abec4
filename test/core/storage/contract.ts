/** The contract of every engine. The test of an engine calls `contract` with a function that creates a database. */
import type { Test } from 'tap';
import { commits } from './contract/commits.js';
import { documents } from './contract/documents.js';
import { kills } from './contract/kills.js';
import { lists } from './contract/lists.js';
import { races } from './contract/races.js';
import { refusals } from './contract/refusals.js';
import { searches } from './contract/searches.js';
import type { Fresh } from './kit.js';

/**
 * Runs the contract on the engine that serves the URIs of `fresh`.
 *
 * @param unindexed how many things of a database the index of texts lacks
 */
export function contract(
  t: Test,
  name: string,
  fresh: Fresh,
  unindexed = async (_t: Test, _uri: string) => 0,
): void {
  for (const part of [documents, races, lists, searches, refusals, commits, kills]) {
    t.test(`${name}: ${part.name}`, async (t) => part(t, fresh, unindexed));
  }
}
