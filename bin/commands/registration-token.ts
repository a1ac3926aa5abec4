import { toTimestamp } from '../../src/core/http/schemas.js';
import type { RegistrationTokenDocument } from '../../src/idp/registration/store.js';
import { MAX_TOKEN_DAYS, MAX_TOKEN_USES } from '../../src/idp/registration/tokens.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { parseInteger } from '../options.js';
import { COMMAND_SOURCE, printList, withProvisioning } from '../provisioning.js';
import { answer, fail } from '../terminal.js';

type CreateOptions = CommonOptions & { uses: number; days: number };

const CREATE = `Create a token with which applications register themselves at /register, and show it once. The server \
needs IDP_CLIENT_REGISTRATION=true.`;

const SHOWN_ONCE = 'The token is shown only once.';

export function define(group: CommandLine): void {
  group.examples('idp registration-token create --uses 10 --days 7');
  group
    .command('create')
    .summary('Create a token and show it once')
    .description(CREATE)
    .option(
      '--uses <count>',
      `Registrations that it allows, up to ${MAX_TOKEN_USES}`,
      parseInteger(1, MAX_TOKEN_USES, 10),
      1,
    )
    .option(
      '--days <days>',
      `Days that it is valid, up to ${MAX_TOKEN_DAYS}`,
      parseInteger(1, MAX_TOKEN_DAYS, 7),
      7,
    )
    .examples('idp registration-token create --uses 10 --days 7')
    .action((options: CreateOptions) =>
      withProvisioning({ create: true }, async ({ registrationTokens }) => {
        const { created, token } = await registrationTokens.create(options, COMMAND_SOURCE);
        answer(options, { ...viewOf(created), token }, SHOWN_ONCE);
      }),
    );
  group
    .command('list')
    .description('List all tokens with their remaining uses')
    .examples('idp registration-token list --json')
    .action((options: CommonOptions) =>
      printList(options, {
        name: 'tokens',
        columns: ['id', 'uses_left', 'expires_at'],
        viewOf,
        page: ({ registrationTokens }, after) => registrationTokens.list(after),
      }),
    );
  group
    .command('revoke')
    .description('End a token; clients that were registered with it remain')
    .argument('<id>')
    .examples('idp registration-token revoke rtk_…')
    .action((id: string, options: CommonOptions) =>
      withProvisioning({ create: false }, async ({ registrationTokens }) => {
        if (!(await registrationTokens.revoke(id, COMMAND_SOURCE))) fail(1, `There is no token ${id}.`);
        answer(options, { id, revoked: true });
      }),
    );
}

const viewOf = ({ id, uses, usesLeft, createdAt, expiresAt }: RegistrationTokenDocument) => ({
  id,
  uses,
  uses_left: usesLeft,
  created_at: toTimestamp(createdAt),
  expires_at: toTimestamp(expiresAt),
});
