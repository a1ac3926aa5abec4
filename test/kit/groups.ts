import type { Test } from 'tap';
import type { Clock } from '../../src/core/kernel/clock.js';
import type { Random } from '../../src/core/kernel/secrets.js';
import type { Audit } from '../../src/core/ops/audit.js';
import { createCommit } from '../../src/core/ops/commit.js';
import type { Store } from '../../src/core/storage/collection.js';
import { createGroups } from '../../src/idp/groups/service.js';
import { SILENT_AUDIT } from './effects.js';
import { type IdpApp, idpStore } from './idp.js';
import { COMMAND_SOURCE } from './operator.js';

/** The groups of a store, as another process changes them. */
export const groupsIn = (
  store: Store,
  { clock, random }: { clock: Clock; random: Random },
  audit: Audit = SILENT_AUDIT,
) =>
  createGroups({
    store,
    commit: createCommit(store),
    audit,
    clock,
    random,
    isVerified: () => false,
    leaving: async () => [],
  });

/** Adds groups with members by `sub` or domain; the provider knows them a second later, which has passed. */
export async function addGroups(t: Test, idp: IdpApp, given: Record<string, readonly string[]>) {
  const groups = groupsIn(await idpStore(t, idp), idp);
  for (const [name, members] of Object.entries(given)) {
    await groups.add({ name }, COMMAND_SOURCE);
    for (const member of members) await groups.addMember(name, await memberOf(idp, member), COMMAND_SOURCE);
  }
  idp.clock.advance(1000);
  return groups;
}

/** A member by `sub` or domain. */
export async function memberOf(idp: IdpApp, member: string) {
  if (member.startsWith('@')) return { member, handle: member, kind: 'domain' } as const;
  const { sub, handle, kind } = (await idp.admin('GET', `/v1/principals/${member}`)).body;
  return { member: sub, handle, kind };
}
