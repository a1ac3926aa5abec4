import type { Command } from 'commander';
import { toTimestamp } from '../../src/core/http/schemas.js';
import { operatorView } from '../../src/idp/provisioning/schemas.js';
import { type CommonOptions, examples } from '../command.js';
import type { Program } from '../program.js';
import { allPages, COMMAND_SOURCE, noPrincipal, withPrincipal, withProvisioning } from '../provisioning.js';
import { answer, answerList, fail } from '../terminal.js';

const RESET = `Print a link with which a person who forgot the password chooses a new one. The link works once, for one \
day. The old password works until the link is used; then all codes, tokens and sessions end.`;

export function define(group: Command, program: Program): void {
  group.addHelpText(
    'after',
    examples('idp principal list ada', 'idp principal disable scout@agents.example'),
  );
  group
    .command('list')
    .description('List people and agents')
    .argument('[prefix]', 'List only handles that begin with this text')
    .addHelpText('after', examples('idp principal list', 'idp principal list ada --json'))
    .action((prefix: string | undefined, options: CommonOptions) => list(program, prefix, options));
  group
    .command('disable')
    .description('Disable a principal at once; its codes, tokens and links end permanently')
    .argument('<handle>')
    .addHelpText('after', examples('idp principal disable scout@agents.example'))
    .action((handle: string, options: CommonOptions) => setState(program, 'disable', handle, options));
  group
    .command('enable')
    .description('Enable a disabled principal; the password stays the same')
    .argument('<handle>')
    .addHelpText('after', examples('idp principal enable scout@agents.example'))
    .action((handle: string, options: CommonOptions) => setState(program, 'enable', handle, options));
  group
    .command('reset')
    .summary('Print a link with which a person chooses a new password')
    .description(RESET)
    .argument('<handle>')
    .addHelpText('after', examples('idp principal reset ada@example.com'))
    .action((handle: string, options: CommonOptions) => resetPassword(program, handle, options));
  group
    .command('remove-factor')
    .description('Remove the second factor of a person who has lost the app and the recovery codes')
    .argument('<handle>')
    .addHelpText('after', examples('idp principal remove-factor ada@example.com'))
    .action((handle: string, options: CommonOptions) => removeFactor(program, handle, options));
  group
    .command('remove-passkeys')
    .description('Remove all passkeys of a person whose device was stolen; the password stays the same')
    .argument('<handle>')
    .addHelpText('after', examples('idp principal remove-passkeys ada@example.com'))
    .action((handle: string, options: CommonOptions) => removePasskeys(program, handle, options));
}

function list(program: Program, prefix: string | undefined, options: CommonOptions): Promise<void> {
  return withProvisioning(program, { create: false }, async ({ directory }) => {
    const principals = await allPages((after) => directory.list({ prefix, after }));
    const columns = ['handle', 'kind', 'state', 'sub', 'created_at', 'name'];
    answerList(options, 'principals', principals.map(operatorView), columns);
  });
}

function setState(
  program: Program,
  verb: 'disable' | 'enable',
  handle: string,
  options: CommonOptions,
): Promise<void> {
  return withPrincipal(program, handle, async ({ id }, administration) => {
    const principal = await administration.directory[verb](id, COMMAND_SOURCE);
    // Another process can delete the principal in the meantime.
    answer(options, operatorView(principal ?? noPrincipal(handle)));
  });
}

function resetPassword(program: Program, handle: string, options: CommonOptions): Promise<void> {
  return withPrincipal(program, handle, async (person, administration) => {
    const link = await administration.links.reset(person, COMMAND_SOURCE);
    if (!link) fail(1, explainRefusal(person));
    answer(options, {
      handle: person.handle,
      reset_url: link.url,
      expires_at: toTimestamp(link.expiresAt),
    });
  });
}

function removeFactor(program: Program, handle: string, options: CommonOptions): Promise<void> {
  return withPrincipal(program, handle, async (person, administration) => {
    if (!(await administration.removeFactor(person.id))) fail(1, `${person.handle} has no second factor.`);
    answer(options, { handle: person.handle, removed: true });
  });
}

function removePasskeys(program: Program, handle: string, options: CommonOptions): Promise<void> {
  return withPrincipal(program, handle, async (person, administration) => {
    const removed = await administration.removePasskeys(person.id);
    if (removed === 0) fail(1, `${person.handle} has no passkey.`);
    answer(options, { handle: person.handle, removed });
  });
}

function explainRefusal({ handle, kind, state }: { handle: string; kind: string; state: string }): string {
  if (kind === 'agent') return `${handle} is an agent. Give it a new password: idp agent rotate ${handle}`;
  if (state === 'invited')
    return `${handle} has no password yet. Send a new invitation: idp invite ${handle}`;
  return `${handle} is ${state}. Enable the account first: idp principal enable ${handle}`;
}
