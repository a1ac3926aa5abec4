import { toTimestamp } from '../../src/http/schemas.js';
import { ON_THE_HOST } from '../../src/idp/provisioning-administration.js';
import { operatorView } from '../../src/provisioning/views.js';
import type { Call, Command } from '../command.js';
import { answer, answerList, principalNamed, withProvisioning } from '../store/provisioning.js';
import { fail } from '../terminal.js';

const list: Command = {
  name: 'principal list',
  takes: ['[prefix]'],
  summary: 'lists people and agents, all or those whose handle begins so',
  examples: ['principal list', 'principal list ada --json'],
  run: listPrincipals,
};

const disable: Command = {
  name: 'principal disable',
  takes: ['<handle>'],
  summary: 'locks somebody out at once; their codes, tokens and links end for good',
  examples: ['principal disable scout@agents.example'],
  run: (call) => switchState(call, 'disable'),
};

const enable: Command = {
  name: 'principal enable',
  takes: ['<handle>'],
  summary: 'lets somebody in again, with the password they had',
  examples: ['principal enable scout@agents.example'],
  run: (call) => switchState(call, 'enable'),
};

const reset: Command = {
  name: 'principal reset',
  takes: ['<handle>'],
  summary: 'prints a link with which a person who forgot the password chooses a new one',
  about: `It works once, for a day. The old password works until then; when the link is used, all codes, tokens and
sessions end.`,
  examples: ['principal reset ada@example.com'],
  run: resetPassword,
};

export const commands = [list, disable, enable, reset];

function listPrincipals(call: Call): Promise<void> {
  const [prefix] = call.args;
  return withProvisioning(call, async ({ directory }) => {
    const found: ReturnType<typeof operatorView>[] = [];
    let after: string | undefined;
    do {
      const { items, next } = await directory.list({ prefix, after });
      found.push(...items.map(operatorView));
      after = next ?? undefined;
    } while (after !== undefined);
    answerList(call, 'principals', found, ['handle', 'kind', 'state', 'sub', 'created_at', 'name']);
  });
}

function switchState(call: Call, verb: 'disable' | 'enable'): Promise<void> {
  const [handle = ''] = call.args;
  return withProvisioning(call, async (administration) => {
    const { id } = await principalNamed(administration, handle);
    const principal = await administration.directory[verb](id, ON_THE_HOST);
    answer(call, operatorView(principal ?? fail(1, `Nobody has the handle ${handle} any more.`)));
  });
}

function resetPassword(call: Call): Promise<void> {
  const [handle = ''] = call.args;
  return withProvisioning(call, async (administration) => {
    const person = await principalNamed(administration, handle);
    const link = await administration.links.reset(person, ON_THE_HOST);
    if (!link) fail(1, whyNoReset(person));
    answer(call, {
      handle: person.handle,
      reset_url: link.url,
      expires_at: toTimestamp(link.expiresAt),
    });
  });
}

function whyNoReset({ handle, kind, state }: { handle: string; kind: string; state: string }): string {
  if (kind === 'agent') return `${handle} is an agent. Give it a new password: idp agent rotate ${handle}`;
  if (state === 'invited') return `${handle} has no password yet. Invite them anew: idp invite ${handle}`;
  return `${handle} is ${state}. Let them in first: idp principal enable ${handle}`;
}
