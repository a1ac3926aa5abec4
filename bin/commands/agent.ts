import type { Command } from 'commander';
import { principalView } from '../../src/provisioning/schemas.js';
import { type CommonOptions, examples } from '../command.js';
import { displayName } from '../options.js';
import type { Program } from '../program.js';
import { findPrincipal, ON_THE_HOST, withProvisioning } from '../provisioning.js';
import { answer, fail } from '../terminal.js';

type MintOptions = CommonOptions & { name?: string };

const SHOWN_ONCE = 'The password is shown only once.';

export function define(group: Command, program: Program): void {
  group.addHelpText(
    'after',
    examples('idp agent mint scout@agents.example --name Scout', 'idp agent rotate scout@agents.example'),
  );
  group
    .command('mint')
    .description('Create an agent and show its password once')
    .argument('<handle>', 'Name that the agent signs in with')
    .option('--name <text>', 'Display name')
    .addHelpText(
      'after',
      examples(
        'idp agent mint scout@agents.example --name Scout',
        'idp agent mint scout@agents.example --json',
      ),
    )
    .action((handle: string, options: MintOptions, command: Command) =>
      mint(program, handle, options, command),
    );
  group
    .command('rotate')
    .description('Give an agent a new password; the old one and all its tokens end at once')
    .argument('<handle>')
    .addHelpText('after', examples('idp agent rotate scout@agents.example'))
    .action((handle: string, options: CommonOptions) => rotate(program, handle, options));
}

async function mint(program: Program, handle: string, options: MintOptions, command: Command): Promise<void> {
  const name = displayName(command, options);
  await withProvisioning(program, { create: true }, async ({ principals }) => {
    const { agent, password } = await principals.mintAgent({ handle, ...name }, ON_THE_HOST, true);
    answer(options, { ...principalView(agent), password }, SHOWN_ONCE);
  });
}

function rotate(program: Program, handle: string, options: CommonOptions): Promise<void> {
  return withProvisioning(program, { create: false }, async (administration) => {
    const agent = await findPrincipal(administration, handle);
    const password = await administration.principals.rotate(agent, ON_THE_HOST);
    if (password === null) {
      fail(1, `${agent.handle} is not an active agent: its kind is ${agent.kind}, its state ${agent.state}.`);
    }
    answer(options, { sub: agent.id, handle: agent.handle, password }, SHOWN_ONCE);
  });
}
