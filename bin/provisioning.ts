import type { Page } from '../src/core/storage/collection.js';
import {
  COMMAND_SOURCE,
  openProvisioning,
  type ProvisioningAdministration,
} from '../src/idp/administration.js';
import { operatorView } from '../src/idp/provisioning/schemas.js';
import type { Kind, PrincipalDocument } from '../src/idp/provisioning/store.js';
import type { CommonOptions } from './command.js';
import { IDP, withStore } from './store.js';
import { answerList, complain, fail } from './terminal.js';

/** Shared by the commands on the store of idp. */

export { COMMAND_SOURCE };

/** @param create whether a missing store is created; without it, the command fails */
export function withProvisioning(
  { create }: { create: boolean },
  work: (administration: ProvisioningAdministration) => Promise<void>,
): Promise<void> {
  return withStore(IDP, () => openProvisioning(complain, { create }), work);
}

/** The principal with this handle; the command fails without one. */
export async function findPrincipal(
  { directory }: ProvisioningAdministration,
  handle: string,
): Promise<PrincipalDocument> {
  return (await directory.findByName(handle)) ?? noPrincipal(handle);
}

export function noPrincipal(handle: string): never {
  return fail(1, `No principal has the handle ${handle}.`);
}

export function refuseAgent({ handle, kind, state }: PrincipalDocument): never {
  return fail(1, `${handle} is not an active agent: its kind is ${kind}, its state ${state}.`);
}

/** Runs `work` on the principal with a handle; the command fails without one. */
export function withPrincipal(
  handle: string,
  work: (principal: PrincipalDocument, administration: ProvisioningAdministration) => Promise<void>,
): Promise<void> {
  return withProvisioning({ create: false }, async (administration) =>
    work(await findPrincipal(administration, handle), administration),
  );
}

/** Prints all items of a paginated list. */
export function printList<Item>(
  options: CommonOptions,
  {
    name,
    columns,
    viewOf,
    page,
  }: {
    name: string;
    columns: readonly string[];
    viewOf(item: Item, options: CommonOptions): Record<string, unknown>;
    page(administration: ProvisioningAdministration, after: string | undefined): Promise<Page<Item>>;
  },
): Promise<void> {
  return withProvisioning({ create: false }, async (administration) => {
    const found: Item[] = [];
    let after: string | undefined;
    do {
      const { items, next } = await page(administration, after);
      found.push(...items);
      after = next ?? undefined;
    } while (after !== undefined);
    const views = found.map((item) => viewOf(item, options));
    answerList(options, name, views, columns);
  });
}

/** Lists people and agents, or those of a kind, whose handles begin with a text. */
export const listPrincipals =
  (name: string, kind?: Kind) =>
  (prefix: string | undefined, options: CommonOptions): Promise<void> =>
    printList(options, {
      name,
      columns: ['handle', 'kind', 'state', 'sub', 'created_at', 'name'],
      viewOf: operatorView,
      page: ({ directory }, after) => directory.list({ prefix, kind, after }),
    });
