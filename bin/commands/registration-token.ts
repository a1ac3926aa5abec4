import { type Command, InvalidArgumentError } from 'commander';
import { toTimestamp } from '../../src/core/http/schemas.js';
import type { RegistrationTokenDocument } from '../../src/idp/registration/store.js';
import { MAX_TOKEN_DAYS, MAX_TOKEN_USES } from '../../src/idp/registration/tokens.js';
import { type CommonOptions, examples } from '../command.js';
import type { Program } from '../program.js';
import { allPages, ON_THE_HOST, withProvisioning } from '../provisioning.js';
import { answer, answerList, fail } from '../terminal.js';

type CreateOptions = CommonOptions & { uses: number; days: number };

const CREATE = `Create a token with which applications register themselves at /register, and show it once. The server \
needs IDP_CLIENT_REGISTRATION=true.`;

const SHOWN_ONCE = 'The token is shown only once.';

export function define(group: Command, program: Program): void {
  group.addHelpText('after', examples('idp registration-token create --uses 10 --days 7'));
  group
    .command('create')
    .summary('Create a token and show it once')
    .description(CREATE)
    .option(
      '--uses <count>',
      `Registrations that it allows, up to ${MAX_TOKEN_USES}`,
      upTo(MAX_TOKEN_USES),
      1,
    )
    .option('--days <days>', `Days that it is valid, up to ${MAX_TOKEN_DAYS}`, upTo(MAX_TOKEN_DAYS), 7)
    .addHelpText('after', examples('idp registration-token create --uses 10 --days 7'))
    .action((options: CreateOptions) =>
      withProvisioning(program, { create: true }, async ({ registrationTokens }) => {
        const { created, token } = await registrationTokens.create(options, ON_THE_HOST);
        answer(options, { ...viewOf(created), token }, SHOWN_ONCE);
      }),
    );
  group
    .command('list')
    .description('List all tokens with their remaining uses')
    .addHelpText('after', examples('idp registration-token list --json'))
    .action((options: CommonOptions) =>
      withProvisioning(program, { create: false }, async ({ registrationTokens }) => {
        const found = await allPages((after) => registrationTokens.list(after));
        answerList(options, 'tokens', found.map(viewOf), ['id', 'uses_left', 'expires_at']);
      }),
    );
  group
    .command('revoke')
    .description('End a token; clients that were registered with it remain')
    .argument('<id>')
    .addHelpText('after', examples('idp registration-token revoke rtk_…'))
    .action((id: string, options: CommonOptions) =>
      withProvisioning(program, { create: false }, async ({ registrationTokens }) => {
        if (!(await registrationTokens.revoke(id, ON_THE_HOST))) fail(1, `There is no token ${id}.`);
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

/** A whole number from 1 to `most`. */
const upTo = (most: number) => (text: string) => {
  const number = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (number >= 1 && number <= most) return number;
  throw new InvalidArgumentError(`Use a whole number from 1 to ${most}.`);
};
