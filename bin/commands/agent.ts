import { MAX_AGENT_KEYS } from '../../src/idp/provisioning/agent-keys.js';
import { principalView } from '../../src/idp/provisioning/schemas.js';
import type { AgentKey, PrincipalDocument } from '../../src/idp/provisioning/store.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { displayName, readJson } from '../options.js';
import { COMMAND_SOURCE, withPrincipal, withProvisioning } from '../provisioning.js';
import { answer, answerList, fail } from '../terminal.js';

type MintOptions = CommonOptions & { name?: string; key?: string };

const SHOWN_ONCE = 'The password is shown only once.';

export function define(group: CommandLine): void {
  group.examples(
    'idp agent mint scout@agents.example --name Scout',
    'idp agent rotate scout@agents.example',
    'idp agent key add scout@agents.example jwk.json',
  );
  group
    .command('mint')
    .description('Create an agent and show its password once')
    .argument('<handle>', 'Name that the agent signs in with')
    .option('--name <text>', 'Display name')
    .option('--key <file>', 'File with its public key as a JWK: the agent gets no password')
    .examples(
      'idp agent mint scout@agents.example --name Scout',
      'idp agent mint scout@agents.example --key jwk.json',
      'idp agent mint scout@agents.example --json',
    )
    .action(mint);
  group
    .command('rotate')
    .description('Give an agent a new password; the old one and all its tokens end at once')
    .argument('<handle>')
    .examples('idp agent rotate scout@agents.example')
    .action((name: string, options: CommonOptions) =>
      withPrincipal(name, async (agent, { principals }) => {
        const password = await principals.rotate(agent, COMMAND_SOURCE);
        if (password === null) refuse(agent);
        answer(options, { sub: agent.id, handle: agent.handle, password }, SHOWN_ONCE);
      }),
    );
  defineKeys(group.command('key'));
}

function defineKeys(group: CommandLine): void {
  group
    .description(`Manage the public keys of an agent, at most ${MAX_AGENT_KEYS}: add, list, remove`)
    .examples(
      'idp agent key add scout@agents.example jwk.json',
      'idp agent key list scout@agents.example',
      'idp agent key remove scout@agents.example kPrK_qmx…',
    );
  group
    .command('add')
    .description('Add a public key on Ed25519 or P-256')
    .argument('<handle>')
    .argument('<file>', 'File with the key as a JWK')
    .examples('idp agent key add scout@agents.example jwk.json')
    .action((handle: string, file: string, options: CommonOptions, command: CommandLine) => {
      const jwk = readJson(command, file);
      return withPrincipal(handle, async (agent, { agentKeys }) => {
        const key = await agentKeys.add(agent, jwk, COMMAND_SOURCE);
        if (key === null) refuse(agent);
        answer(options, { sub: agent.id, ...viewOf(key) });
      });
    });
  group
    .command('list')
    .description('List the keys of an agent')
    .argument('<handle>')
    .examples('idp agent key list scout@agents.example --json')
    .action((handle: string, options: CommonOptions) =>
      withPrincipal(handle, async ({ keys = [] }) => {
        answerList(options, 'keys', keys.map(viewOf), ['id', 'curve', 'added_at']);
      }),
    );
  group
    .command('remove')
    .description('Remove a key; all tokens of the agent end at once')
    .argument('<handle>')
    .argument('<thumbprint>', 'The id of the key in the list')
    .examples('idp agent key remove scout@agents.example kPrK_qmx…')
    .action((handle: string, id: string, options: CommonOptions) =>
      withPrincipal(handle, async (agent, { agentKeys }) => {
        const key = await agentKeys.remove(agent, id, COMMAND_SOURCE);
        if (key === null) fail(1, `${agent.handle} has no key ${id}.`);
        answer(options, { sub: agent.id, ...viewOf(key) });
      }),
    );
}

async function mint(handle: string, options: MintOptions, command: CommandLine): Promise<void> {
  const identity = { handle, ...displayName(command, options) };
  const key = options.key === undefined ? undefined : readJson(command, options.key);
  await withProvisioning({ create: true }, async ({ principals }) => {
    if (key !== undefined) {
      const agent = await principals.mintAgentWithKey({ ...identity, key }, COMMAND_SOURCE);
      return answer(options, { ...principalView(agent), key: agent.keys?.[0]?.id });
    }
    const { agent, password } = await principals.mintAgent(identity, COMMAND_SOURCE, true);
    answer(options, { ...principalView(agent), password }, SHOWN_ONCE);
  });
}

const viewOf = ({ id, jwk, addedAt }: AgentKey) => ({
  id,
  curve: jwk.crv,
  added_at: new Date(addedAt).toISOString(),
});

function refuse({ handle, kind, state }: PrincipalDocument): never {
  return fail(1, `${handle} is not an active agent: its kind is ${kind}, its state ${state}.`);
}
