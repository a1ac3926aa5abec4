import { parseList } from '../../src/core/config/options.js';
import { toTimestamp } from '../../src/core/http/schemas.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { displayName, parseInteger } from '../options.js';
import { COMMAND_SOURCE, withProvisioning } from '../provisioning.js';
import { answer } from '../terminal.js';

type InviteOptions = CommonOptions & { days?: number; name?: string; groups?: string[] };

const DESCRIPTION = `Print a link with which a person creates an account. The link works once. A second invitation of a \
person who has not used the first ends the first.`;

export function define(command: CommandLine): void {
  command
    .description(DESCRIPTION)
    .argument('<handle>', 'Name that the person signs in with, like ada@example.com')
    .option('--days <number>', 'Days until the link expires, 1 to 30 (default: 7)', parseInteger(1, 30, 7))
    .option('--name <text>', 'Display name')
    .option('--groups <names>', 'Groups that the person is in once the link is used', parseList)
    .examples(
      'idp invite ada@example.com --groups admins',
      'idp invite ada@example.com --name "Ada Lovelace" --days 1',
    )
    .action(invite);
}

async function invite(handle: string, options: InviteOptions, command: CommandLine): Promise<void> {
  const { days, groups } = options;
  const input = { handle, groups, ...displayName(command, options), ...(days !== undefined && { days }) };
  await withProvisioning({ create: true }, async ({ links }) => {
    const { principal, url, expiresAt } = await links.invite(input, COMMAND_SOURCE);
    answer(options, { handle: principal.handle, invite_url: url, expires_at: toTimestamp(expiresAt) });
  });
}
