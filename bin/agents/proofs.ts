import { InvalidArgumentError } from 'commander';
import { toTimestamp } from '../../src/core/http/schemas.js';
import { keyTypeOf } from '../../src/core/kernel/public-jwk.js';
import { MAX_AGENT_KEYS } from '../../src/idp/provisioning/agent-keys.js';
import { MAX_WORKLOAD_RULES } from '../../src/idp/provisioning/agent-workloads.js';
import { type AgentKey, textOfRule, type WorkloadRule } from '../../src/idp/provisioning/store.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { readJson } from '../options.js';
import { COMMAND_SOURCE, refuseAgent, withPrincipal } from '../provisioning.js';
import { answer, answerList, fail } from '../terminal.js';

/** How agents prove themselves without a password: the commands about their keys and workloads. */

export function defineKeys(group: CommandLine): void {
  group
    .description(`Manage the public keys of an agent, at most ${MAX_AGENT_KEYS}: add, list, remove`)
    .examples(
      'idp agent key add scout@agents.example jwk.json',
      'idp agent key list scout@agents.example',
      'idp agent key remove scout@agents.example kPrK_qmx…',
    );
  group
    .command('add')
    .description('Add a public key on Ed25519 or P-256, or of RSA')
    .argument('<handle>')
    .argument('<file>', 'File with the key as a JWK')
    .examples('idp agent key add scout@agents.example jwk.json')
    .action((handle: string, file: string, options: CommonOptions, command: CommandLine) => {
      const jwk = readJson(command, file);
      return withPrincipal(handle, async (agent, { agentKeys }) => {
        const key = await agentKeys.add(agent, jwk, COMMAND_SOURCE);
        if (key === null) refuseAgent(agent);
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

interface TrustOptions extends CommonOptions {
  issuer: string;
  subject: string;
  audience?: string;
  claim?: Record<string, string>;
  jwks?: string;
}

const TRUST = `Accept tokens of another issuer as a proof of the agent: of GitHub Actions, GitLab, Kubernetes, SPIFFE or a cloud. The workload that has such a token needs no secret. In --subject, * stands for any text; two whole parts come before it.`;

export function defineTrust(group: CommandLine): void {
  group
    .description(
      `Manage which workloads are an agent, by at most ${MAX_WORKLOAD_RULES} rules: add, list, remove`,
    )
    .examples(
      'idp agent trust list scout@agents.example',
      'idp agent trust remove scout@agents.example wlr_0190…',
    );
  group
    .command('add')
    .summary('Accept tokens of another issuer as a proof of the agent')
    .description(TRUST)
    .argument('<handle>')
    .requiredOption('--issuer <url>', 'Issuer of the tokens, exactly as in their claim iss')
    .requiredOption('--subject <pattern>', 'Their claim sub, like repo:acme/app:ref:refs/heads/main')
    .option('--audience <text>', 'A value of their claim aud; the issuer of this provider by default')
    .option('--claim <name=value>', 'Another claim that they must have; may be repeated', parseClaim)
    .option('--jwks <file>', 'File with the keys of an issuer that cannot be reached, as a JWK Set')
    .examples(
      `idp agent trust add scout@agents.example --issuer https://token.actions.githubusercontent.com \\
      --subject repo:acme/app:ref:refs/heads/main`,
    )
    .action((handle: string, options: TrustOptions, command: CommandLine) => {
      const { issuer, subject, audience, claim: claims, jwks: file } = options;
      const jwks = file === undefined ? undefined : readJson(command, file);
      return withPrincipal(handle, async (agent, { agentWorkloads }) => {
        const input = { issuer, subject, audience, claims, jwks };
        const rule = await agentWorkloads.add(agent, input, COMMAND_SOURCE);
        answer(options, { sub: agent.id, ...ruleView(rule ?? refuseAgent(agent), options) });
      });
    });
  group
    .command('list')
    .description('List the rules of an agent')
    .argument('<handle>')
    .examples('idp agent trust list scout@agents.example --json')
    .action((handle: string, options: CommonOptions) =>
      withPrincipal(handle, async ({ workloads = [] }) => {
        answerList(
          options,
          'rules',
          workloads.map((rule) => ruleView(rule, options)),
          ['rule'],
        );
      }),
    );
  group
    .command('remove')
    .description('Remove a rule; all tokens of the agent end at once')
    .argument('<handle>')
    .argument('<id>', 'The id of the rule in the list')
    .examples('idp agent trust remove scout@agents.example wlr_0190…')
    .action((handle: string, id: string, options: CommonOptions) =>
      withPrincipal(handle, async (agent, { agentWorkloads }) => {
        const rule = await agentWorkloads.remove(agent, id, COMMAND_SOURCE);
        if (rule === null) fail(1, `${agent.handle} has no rule ${id}.`);
        answer(options, { sub: agent.id, ...ruleView(rule, options) });
      }),
    );
}

function parseClaim(text: string, before: Record<string, string> = {}): Record<string, string> {
  const [, name = '', value = ''] = /^([^=]+)=(.+)$/s.exec(text) ?? [];
  if (name === '') throw new InvalidArgumentError('Use name=value, like repository_id=1296269.');
  return { ...before, [name]: value };
}

const ruleView = (rule: WorkloadRule, { json }: CommonOptions) => {
  const { jwks = [], addedAt, audience = null, claims = {}, ...fields } = rule;
  return json
    ? { ...fields, audience, claims, stored_keys: jwks.length, added_at: toTimestamp(addedAt) }
    : { rule: textOfRule(rule) };
};

const viewOf = ({ id, jwk, addedAt }: AgentKey) => ({
  id,
  curve: keyTypeOf(jwk),
  added_at: toTimestamp(addedAt),
});
