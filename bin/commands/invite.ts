import { toTimestamp } from '../../src/http/schemas.js';
import { ON_THE_HOST } from '../../src/idp/provisioning-administration.js';
import { type Call, type Command, UsageError } from '../command.js';
import { nameIn } from '../name.js';
import { answer, beginProvisioning } from '../store/provisioning.js';

const invite: Command = {
  name: 'invite',
  takes: ['<handle>'],
  summary: 'prints a link with which a person makes their account',
  about: 'It works once. Inviting somebody anew who has not used the link yet ends the older one.',
  options: {
    days: { value: '<number>', doc: 'how long the link works, 1 to 30; else 7' },
    name: { value: '<text>', doc: 'display name' },
  },
  examples: ['invite ada@example.com', 'invite ada@example.com --name "Ada Lovelace" --days 1'],
  run: invitePerson,
};

export const commands = [invite];

async function invitePerson(call: Call): Promise<void> {
  const [handle = ''] = call.args;
  const days = call.text('days');
  if (days !== undefined && !(/^\d{1,2}$/.test(days) && Number(days) >= 1 && Number(days) <= 30)) {
    throw new UsageError(`--days takes a number from 1 to 30, not '${days}'.`, invite);
  }
  const name = nameIn(call, invite);
  await beginProvisioning(call, async ({ links }) => {
    const input = { handle, ...name, ...(days !== undefined && { days: Number(days) }) };
    const invitation = await links.invite(input, ON_THE_HOST);
    answer(call, {
      handle: invitation.principal.handle,
      invite_url: invitation.url,
      expires_at: toTimestamp(invitation.expiresAt),
    });
  });
}
