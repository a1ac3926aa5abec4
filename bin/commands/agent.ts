import { ON_THE_HOST } from '../../src/idp/provisioning-administration.js';
import { principalView } from '../../src/provisioning/views.js';
import type { Call, Command } from '../command.js';
import { nameIn } from '../name.js';
import { answer, beginProvisioning, principalNamed, withProvisioning } from '../store/provisioning.js';
import { fail } from '../terminal.js';

const ONCE = 'The password is shown here and never again.';

const mint: Command = {
  name: 'agent mint',
  takes: ['<handle>'],
  summary: 'makes an agent and shows its password once',
  options: { name: { value: '<text>', doc: 'display name' } },
  examples: ['agent mint scout@agents.example --name Scout', 'agent mint scout@agents.example --json'],
  run: mintAgent,
};

const rotate: Command = {
  name: 'agent rotate',
  takes: ['<handle>'],
  summary: 'gives an agent a new password; the old one and all its tokens end at once',
  examples: ['agent rotate scout@agents.example'],
  run: rotateAgent,
};

export const commands = [mint, rotate];

async function mintAgent(call: Call): Promise<void> {
  const [handle = ''] = call.args;
  const name = nameIn(call, mint);
  await beginProvisioning(call, async ({ principals }) => {
    const { agent, password } = await principals.mintAgent({ handle, ...name }, ON_THE_HOST);
    answer(call, { ...principalView(agent), password }, ONCE);
  });
}

function rotateAgent(call: Call): Promise<void> {
  const [handle = ''] = call.args;
  return withProvisioning(call, async (administration) => {
    const agent = await principalNamed(administration, handle);
    const password = await administration.principals.rotate(agent, ON_THE_HOST);
    if (password === null)
      fail(1, `${agent.handle} is no active agent: it is a ${agent.kind}, ${agent.state}.`);
    answer(call, { sub: agent.id, handle: agent.handle, password }, ONCE);
  });
}
