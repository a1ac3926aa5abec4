import {
  COMMAND_SOURCE,
  openProvisioning,
  type ProvisioningAdministration,
} from '../src/idp/administration.js';
import type { PrincipalDocument } from '../src/idp/provisioning/store.js';
import type { Program } from './program.js';
import { withStore } from './store.js';
import { complain, fail } from './terminal.js';

/** Shared by the commands for principals and clients. */

export { COMMAND_SOURCE };

/** @param create whether a missing store is created; without it, the command fails */
export function withProvisioning(
  program: Program,
  { create }: { create: boolean },
  work: (administration: ProvisioningAdministration) => Promise<void>,
): Promise<void> {
  return withStore(program, () => openProvisioning(complain, { create }), work);
}

/** The principal with this handle; the command fails without one. */
export async function findPrincipal(
  { directory }: ProvisioningAdministration,
  handle: string,
): Promise<PrincipalDocument> {
  return (await directory.findByHandle(handle)) ?? noPrincipal(handle);
}

export function noPrincipal(handle: string): never {
  return fail(1, `No principal has the handle ${handle}.`);
}

/** Runs `work` on the principal with a handle; the command fails without one. */
export function withPrincipal(
  program: Program,
  handle: string,
  work: (principal: PrincipalDocument, administration: ProvisioningAdministration) => Promise<void>,
): Promise<void> {
  return withProvisioning(program, { create: false }, async (administration) =>
    work(await findPrincipal(administration, handle), administration),
  );
}

/** All items of a paginated list. */
export async function allPages<Item>(
  page: (after: string | undefined) => Promise<{ items: Item[]; next: string | null }>,
): Promise<Item[]> {
  const found: Item[] = [];
  let after: string | undefined;
  do {
    const { items, next } = await page(after);
    found.push(...items);
    after = next ?? undefined;
  } while (after !== undefined);
  return found;
}
