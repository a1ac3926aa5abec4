import type { Command } from 'commander';
import { toTimestamp } from '../../src/core/http/schemas.js';
import { type CommonOptions, examples } from '../command.js';
import { displayName, parseInteger } from '../options.js';
import type { Program } from '../program.js';
import { ON_THE_HOST, withProvisioning } from '../provisioning.js';
import { answer } from '../terminal.js';

type InviteOptions = CommonOptions & { days?: number; name?: string };

const DESCRIPTION = `Print a link with which a person creates an account. The link works once. A second invitation of a \
person who has not used the first ends the first.`;

export function define(command: Command, program: Program): void {
  command
    .description(DESCRIPTION)
    .argument('<handle>', 'Name that the person signs in with, like ada@example.com')
    .option('--days <number>', 'Days until the link expires, 1 to 30 (default: 7)', parseInteger(1, 30, 7))
    .option('--name <text>', 'Display name')
    .addHelpText(
      'after',
      examples('idp invite ada@example.com', 'idp invite ada@example.com --name "Ada Lovelace" --days 1'),
    )
    .action((handle: string, options: InviteOptions) => invite(program, command, handle, options));
}

async function invite(
  program: Program,
  command: Command,
  handle: string,
  options: InviteOptions,
): Promise<void> {
  const name = displayName(command, options);
  const { days } = options;
  await withProvisioning(program, { create: true }, async ({ links }) => {
    const invitation = await links.invite(
      { handle, ...name, ...(days !== undefined && { days }) },
      ON_THE_HOST,
    );
    answer(options, {
      handle: invitation.principal.handle,
      invite_url: invitation.url,
      expires_at: toTimestamp(invitation.expiresAt),
    });
  });
}
