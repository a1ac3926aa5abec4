import { toTimestamp } from '../../src/core/http/schemas.js';
import { operatorView } from '../../src/idp/provisioning/schemas.js';
import type { PrincipalDocument } from '../../src/idp/provisioning/store.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { COMMAND_SOURCE, listPrincipals, noPrincipal, withPrincipal } from '../provisioning.js';
import { answer, confirmDeletion, fail } from '../terminal.js';

const RESET = `Print a link with which a person who forgot the password chooses a new one. The link works once, for one \
day. The old password works until the link is used; then all codes, tokens and sessions end.`;

const UPDATE = `Change what is stored about a person or an agent for claims. Applications get given_name, family_name, nickname, \
picture and locale with the scope profile, and others that are declared for them (idp client update --claims). Types are string, \
number, boolean and list.`;

const EMAIL = `The address of a person whose handle is not the address; "" removes it. It is not confirmed until the person follows \
a link, which is sent there if a mail server is configured. Until then, no link for a forgotten password is sent.`;

type UpdateOptions = CommonOptions & { set?: string[]; unset?: string[]; email?: string };

type DeleteOptions = CommonOptions & { yes?: true };

const collect = (text: string, before: string[] = []): string[] => [...before, text];

export function define(group: CommandLine): void {
  group.examples('idp principal list ada', 'idp principal disable scout@agents.example');
  group
    .command('list')
    .description('List people and agents')
    .argument('[prefix]', 'List only handles that begin with this text')
    .examples('idp principal list', 'idp principal list ada --json')
    .action(listPrincipals('principals'));
  group
    .command('update')
    .description(UPDATE)
    .argument('<handle>')
    .option('--set <entry>', 'name=text or name:type=value; may be repeated', collect)
    .option('--unset <name>', 'Entry to remove; may be repeated', collect)
    .option('--email <address>', EMAIL)
    .examples(
      'idp principal update ada@example.com --set given_name=Ada --set locale=en',
      'idp principal update ada@example.com --set level:number=3 --set teams:list=core,web --unset nickname',
      'idp principal update ada --email ada@example.com',
    )
    .action(update);
  group
    .command('disable')
    .description('Disable a principal at once; its codes, tokens and links end permanently')
    .argument('<handle>')
    .examples('idp principal disable scout@agents.example')
    .action(setState('disable'));
  group
    .command('enable')
    .description('Enable a disabled principal; the password stays the same')
    .argument('<handle>')
    .examples('idp principal enable scout@agents.example')
    .action(setState('enable'));
  group
    .command('delete')
    .description('Delete a person or an agent with what gives access to it; the handle stays reserved')
    .argument('<handle>')
    .option('--yes', 'Do not ask for the handle')
    .examples(
      'idp principal delete scout@agents.example',
      'idp principal delete ada@example.com --yes --json',
    )
    .action((name: string, options: DeleteOptions, command: CommandLine) =>
      withPrincipal(name, async ({ id, handle }, { directory }) => {
        if (!options.yes) await confirmDeletion(command, handle);
        if (!(await directory.delete(id, COMMAND_SOURCE))) fail(1, `${handle} is deleted already.`);
        answer(options, { sub: id, handle, state: 'deleted' });
      }),
    );
  group
    .command('reset')
    .summary('Print a link with which a person chooses a new password')
    .description(RESET)
    .argument('<handle>')
    .examples('idp principal reset ada@example.com')
    .action((handle: string, options: CommonOptions) =>
      withPrincipal(handle, async (person, { links }) => {
        const link = await links.reset(person, COMMAND_SOURCE);
        if (!link) fail(1, explainRefusal(person));
        const { url, expiresAt } = link;
        answer(options, { handle: person.handle, reset_url: url, expires_at: toTimestamp(expiresAt) });
      }),
    );
  group
    .command('remove-factor')
    .description('Remove the second factor of a person who has lost the app and the recovery codes')
    .argument('<handle>')
    .examples('idp principal remove-factor ada@example.com')
    .action((name: string, options: CommonOptions) =>
      withPrincipal(name, async ({ id, handle }, { removeFactor }) => {
        if (!(await removeFactor(id))) fail(1, `${handle} has no second factor.`);
        answer(options, { handle, removed: true });
      }),
    );
  group
    .command('remove-passkeys')
    .description('Remove all passkeys of a person whose device was stolen; the password stays the same')
    .argument('<handle>')
    .examples('idp principal remove-passkeys ada@example.com')
    .action((name: string, options: CommonOptions) =>
      withPrincipal(name, async ({ id, handle }, { removePasskeys }) => {
        const removed = await removePasskeys(id);
        if (removed === 0) fail(1, `${handle} has no passkey.`);
        answer(options, { handle, removed });
      }),
    );
}

async function update(
  handle: string,
  { set = [], unset = [], email, ...options }: UpdateOptions,
  command: CommandLine,
): Promise<void> {
  const hasEntries = set.length + unset.length > 0;
  if (!hasEntries && email === undefined)
    command.error('error: no change is given. Use --set, --unset or --email.');
  await withPrincipal(handle, async (principal, { directory }) => {
    const { id } = principal;
    let updated: PrincipalDocument | null = principal;
    if (hasEntries) {
      const change = [...set.map(directory.parseMetadata), ...unset.map((name) => [name, null] as const)];
      updated = await directory.changeMetadata(id, Object.fromEntries(change), COMMAND_SOURCE);
    }
    if (email !== undefined) updated = await directory.changeEmail(id, email, COMMAND_SOURCE);
    answer(options, viewOf(updated ?? noPrincipal(handle), options));
  });
}

function viewOf(principal: PrincipalDocument, { json }: CommonOptions) {
  const { metadata, ...view } = operatorView(principal);
  return { ...view, ...(metadata && { metadata: json ? metadata : JSON.stringify(metadata) }) };
}

const setState = (verb: 'disable' | 'enable') => (handle: string, options: CommonOptions) =>
  withPrincipal(handle, async ({ id }, { directory }) => {
    const principal = await directory[verb](id, COMMAND_SOURCE);
    // Another process can delete the principal in the meantime.
    answer(options, viewOf(principal ?? noPrincipal(handle), options));
  });

function explainRefusal({ handle, kind, state }: { handle: string; kind: string; state: string }): string {
  if (kind === 'agent') return `${handle} is an agent. Give it a new password: idp agent rotate ${handle}`;
  if (state === 'invited')
    return `${handle} has no password yet. Send a new invitation: idp invite ${handle}`;
  return `${handle} is ${state}. Enable the account first: idp principal enable ${handle}`;
}
