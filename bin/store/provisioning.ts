import type { ProvisioningAdministration } from '../../src/idp/provisioning-administration.js';
import type { PrincipalDocument } from '../../src/provisioning/store.js';
import type { Call } from '../command.js';
import { complain, fail, say } from '../terminal.js';
import { withStore } from './with-store.js';

/** What the commands about principals and clients have in common. */

type Work = (administration: ProvisioningAdministration) => Promise<void>;

/** Works on the store that is there; where there is none, the program ends. */
export function withProvisioning(call: Call, work: Work): Promise<void> {
  return withStore(call, () => open({ create: false }), work);
}

/** For whatever makes somebody or something: where there is no store yet, it is made, too. */
export function beginProvisioning(call: Call, work: Work): Promise<void> {
  return withStore(call, () => open({ create: true }), work);
}

async function open(options: { create: boolean }): Promise<ProvisioningAdministration> {
  const { openProvisioning } = await import('../../src/idp/provisioning-administration.js');
  return openProvisioning(complain, options);
}

/** One line of JSON, or each field on a line of its own. */
export function answer({ json }: Call, fields: Record<string, unknown>, note?: string): void {
  const width = Math.max(...Object.keys(fields).map((name) => name.length));
  const lines = Object.entries(fields).map(([name, value]) => `${name.padEnd(width)}  ${readable(value)}`);
  say(json ? JSON.stringify(fields) : lines.join('\n'));
  if (note !== undefined && !json) complain(note);
}

/** One line of JSON, or a row for each. */
export function answerList(
  { json }: Call,
  name: string,
  rows: Record<string, unknown>[],
  columns: readonly string[],
): void {
  const cells = rows.map((row) => columns.map((column) => readable(row[column])));
  const widths = columns.map((_, index) => Math.max(...cells.map((row) => row[index]?.length ?? 0)));
  const lines = cells.map((row) => row.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join('  '));
  if (json) say(JSON.stringify({ [name]: rows }));
  else if (lines.length === 0) complain(`There are no ${name}.`);
  else say(lines.map((line) => line.trimEnd()).join('\n'));
}

function readable(value: unknown): string {
  if (Array.isArray(value)) return value.join(' ') || '-';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  return value === '' || value === undefined ? '-' : String(value);
}

/** The principal with this handle; without one the program ends. */
export async function principalNamed(
  { directory }: ProvisioningAdministration,
  handle: string,
): Promise<PrincipalDocument> {
  return (await directory.findByHandle(handle)) ?? fail(1, `Nobody has the handle ${handle}.`);
}
