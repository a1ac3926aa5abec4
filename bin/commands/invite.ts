import { parseList } from '../../src/core/config/options.js';
import { toTimestamp } from '../../src/core/http/schemas.js';
import { systemClock } from '../../src/core/kernel/clock.js';
import type { ProvisioningAdministration } from '../../src/idp/administration.js';
import { inviteView } from '../../src/idp/provisioning/invite-schemas.js';
import type { Invitation, Invited } from '../../src/idp/provisioning/new-links.js';
import type { PrincipalDocument } from '../../src/idp/provisioning/store.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { displayName, parseInteger } from '../options.js';
import { type Line, readPeople } from '../people-csv.js';
import { createProgress } from '../progress.js';
import { COMMAND_SOURCE, printList, withPrincipal, withProvisioning } from '../provisioning.js';
import { answer, complain, fail, say, sentences } from '../terminal.js';

interface InviteOptions extends CommonOptions {
  email?: string;
  name?: string;
  groups?: string[];
  application?: string;
  days?: number;
  print?: true;
  resend?: true;
  csv?: string;
  skipInvalid?: true;
}

const INVITE = `Invite a person, who creates an account with a link. The link works once. It is sent by e-mail if a mail server is \
configured and the person has an address, and printed otherwise. A second invitation of a person who has not used the first ends \
the first.

With --csv, everyone in a file is invited: UTF-8 with a header of the columns handle, email, name, groups (separated by spaces) and \
application, of which only handle is required. Nobody is invited if a line is wrong. Who has an account or an open invitation is \
skipped, so that the command can be repeated.`;

export function define(group: CommandLine): void {
  group
    .description('Invite people to create accounts')
    .examples('idp invite ada@example.com --groups admins', 'idp invite --csv people.csv', 'idp invite list');
  group
    .command('create', { isDefault: true })
    .summary('Invite a person, or everyone in a CSV file')
    .description(INVITE)
    .argument('[handle]', 'Name that the person signs in with, like ada@example.com')
    .option('--email <address>', 'E-mail address, if the handle is not the address')
    .option('--name <text>', 'Display name')
    .option('--groups <names>', 'Groups that the person is in once the link is used', parseList)
    .option('--application <name>', 'Where the person continues: the name or client ID of an application')
    .option('--days <number>', 'Days until the link expires, 1 to 30 (default: 7)', parseInteger(1, 30, 7))
    .option('--print', 'Print the link and send no e-mail')
    .option('--resend', 'Create a new link only for people whose invitation was not accepted')
    .option('--csv <file>', 'Invite everyone in this file')
    .option('--skip-invalid', 'With --csv: leave out lines that are wrong')
    .examples(
      'idp invite ada@example.com --groups admins',
      'idp invite ada --email ada@example.com --name "Ada Lovelace" --application Grafana',
      'idp invite ada@example.com --resend',
      'idp invite --csv people.csv --days 14',
    )
    .action(invite);
  group
    .command('list')
    .description('List invitations that were not accepted; never their links')
    .option('--expired', 'Only those whose link has expired; they are removed after 30 days')
    .examples('idp invite list', 'idp invite list --expired --json')
    .action((options: CommonOptions & { expired?: true }) =>
      printList(options, {
        name: 'invites',
        columns: ['handle', 'state', 'expires_at', 'email', 'sub', 'name'],
        viewOf: (principal: PrincipalDocument) => inviteView(principal, systemClock.now()),
        page: ({ directory }, after) =>
          directory.list({ state: 'invited', hasExpiredLink: options.expired, after }),
      }),
    );
  group
    .command('withdraw')
    .description('End an invitation that was not accepted; the handle is free again')
    .argument('<handle>')
    .examples('idp invite withdraw ada@example.com')
    .action((name: string, options: CommonOptions) =>
      withPrincipal(name, async ({ id, handle }, { links }) => {
        if (!(await links.withdraw(id, COMMAND_SOURCE))) fail(1, `${handle} has accepted the invitation.`);
        answer(options, { handle, withdrawn: true });
      }),
    );
}

async function invite(
  handle: string | undefined,
  options: InviteOptions,
  command: CommandLine,
): Promise<void> {
  const { csv, email, groups, application } = options;
  if ((handle === undefined) === (csv === undefined))
    command.error('error: name one handle, or a file with --csv.');
  const common = commonOf(options);
  if (csv !== undefined) {
    if (email ?? options.name ?? groups ?? application)
      command.error(
        'error: with --csv, e-mail addresses, names, groups and applications are columns of the file.',
      );
    const lines = readPeople(csv, command);
    return withProvisioning({ create: true }, (administration) => inviteAll(lines, administration, options));
  }
  const person = { handle: handle ?? '', email, groups, application, ...displayName(command, options) };
  await withProvisioning({ create: true }, async ({ links, lacksSeed }) => {
    const invitation = await links.invite({ ...person, ...common }, COMMAND_SOURCE);
    const note = lacksSeed && !options.print ? NO_SEED : undefined;
    answer(options, viewOf(invitation), note);
  });
}

const commonOf = ({ days, print, resend }: InviteOptions) => ({
  ...(days !== undefined && { days }),
  ...(resend && { isRepeated: true }),
  delivery: print ? ('none' as const) : ('if-possible' as const),
});

const NO_SEED =
  'No e-mail is sent: set IDP_ED25519_SEED for this command as for the server, which encrypts the link.';

/** A link that is mailed is not printed, so that it stays between the mailbox and the person. */
function viewOf({ principal, url, expiresAt, sentTo }: Invitation) {
  const link = sentTo === undefined ? { invite_url: url } : { sent_to: sentTo };
  return { handle: principal.handle, ...link, expires_at: toTimestamp(expiresAt) };
}

/** Examines every line before the first person is invited. */
async function inviteAll(
  lines: readonly Line[],
  { links, lacksSeed }: ProvisioningAdministration,
  options: InviteOptions,
): Promise<void> {
  const invited: ReturnType<typeof viewOf>[] = [];
  const skipped: { handle: string; reason: string }[] = [];
  const wrong: { line: number; problem: string }[] = [];
  const due: { line: number; person: Invited }[] = [];
  for (const { line, person, problem } of lines) {
    const found = problem === undefined ? await links.examine(person).catch(problemOf) : { problem };
    if (typeof found === 'object') wrong.push({ line, problem: found.problem });
    else if (found === 'active') skipped.push({ handle: person.handle, reason: 'has an account' });
    else if (found === 'open' && !options.resend)
      skipped.push({
        handle: person.handle,
        reason: 'has an open invitation; --resend ends it and sends another link',
      });
    else if (found === 'new' && options.resend)
      skipped.push({ handle: person.handle, reason: 'has no invitation' });
    else due.push({ line, person });
  }
  for (const { line, problem } of wrong) complain(`line ${line}: ${problem}`);
  const isRefused = wrong.length > 0 && !options.skipInvalid;
  const progress = createProgress({ name: 'people', write: String });
  for (const [index, { line, person }] of (isRefused ? [] : due).entries()) {
    // Another process can have taken a name in the meantime.
    const done = await links.invite({ ...person, ...commonOf(options) }, COMMAND_SOURCE).catch(problemOf);
    if ('problem' in done) {
      progress.end();
      complain(`line ${line}: ${done.problem}`);
      wrong.push({ line, problem: done.problem });
    } else invited.push(viewOf(done));
    progress.show(index + 1, due.length);
  }
  progress.end();
  if (wrong.length > 0) process.exitCode = 1;
  if (options.json) return say(JSON.stringify({ invited, skipped, wrong }));
  for (const { handle, reason } of skipped) complain(`${handle} ${reason}.`);
  for (const view of invited)
    say(`${view.handle}  ${'invite_url' in view ? view.invite_url : `sent to ${view.sent_to}`}`);
  complain(
    isRefused
      ? `Nobody was invited. Correct the lines, or leave them out with --skip-invalid.`
      : `${invited.length} invited, ${skipped.length} skipped, ${wrong.length} wrong.`,
  );
  if (lacksSeed && !options.print) complain(NO_SEED);
}

function problemOf(error: unknown): { problem: string } {
  if (!(error instanceof Error)) throw error;
  const { details } = error as { details?: readonly { path: string; message: string }[] };
  if (details) return { problem: details.map(({ path, message }) => `${path} ${message}`).join('; ') };
  if (!('statusCode' in error) || Number(error.statusCode) >= 500) throw error;
  return { problem: sentences(error) };
}
