import { Option } from 'commander';
import { systemClock } from '../../src/core/kernel/clock.js';
import {
  type ExchangeOptions,
  exchangeSchema,
  exchangeToken,
  TOKEN_TYPES,
  typeOf,
} from '../clients/exchange-client.js';
import { LoginFailed } from '../clients/provider-client.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { resolveFlags } from '../options.js';
import { readPassword } from '../password.js';
import { readSecretFile, writeSecretFile } from '../secret-file.js';
import { fail, say } from '../terminal.js';

interface TokenOptions extends CommonOptions {
  issuer?: string;
  client?: string;
  resource?: string;
  scope?: string;
  delegation?: string;
  subjectTokenStdin?: true;
  subjectTokenType?: string;
  actorTokenType?: string;
}

const DESCRIPTION = `Exchange a token for an access token with which an agent acts for a person, and print it, or all tokens with \
--json.

The token to exchange is that of a delegation, or an access token that the agent hands on to a second agent. It is read from the \
file of --delegation, from standard input, or from IDP_EXCHANGE_SUBJECT_TOKEN; the proof of the agent from \
IDP_EXCHANGE_ACTOR_TOKEN. Environment variables can replace the other options: IDP_LOGIN_ISSUER, IDP_LOGIN_CLIENT_ID, \
IDP_LOGIN_CLIENT_SECRET, IDP_LOGIN_RESOURCE and IDP_LOGIN_SCOPE. A secret can also be read from a file, like \
IDP_EXCHANGE_ACTOR_TOKEN_FILE. No secret is an argument, because other users of the machine can read arguments.`;

const TYPES = Object.keys(TOKEN_TYPES);

export function define(group: CommandLine): void {
  group.examples('idp token exchange --delegation delegation.txt');
  group
    .command('exchange')
    .summary('Exchange a token for one with which an agent acts for a person')
    .description(DESCRIPTION)
    .option('--issuer <url>', 'Identity provider')
    .option('--client <client-id>', 'Application that has got the token, or the sub of an agent')
    .option('--delegation <file>', 'File with the token of a delegation; the next one replaces it')
    .option('--subject-token-stdin', 'Read the token to exchange from standard input')
    .option('--resource <uri>', 'API that the access token is for')
    .option('--scope <scopes>', 'A part of the scopes (default: all)')
    .addOption(new Option('--subject-token-type <type>', 'Default: what the token looks like').choices(TYPES))
    .addOption(new Option('--actor-token-type <type>', 'Default: what the token looks like').choices(TYPES))
    .examples(
      'idp token exchange --issuer https://id.example.com --client cid_… \\',
      '  --delegation delegation.txt',
      'idp token exchange --subject-token-stdin --json \\',
      '  --resource https://api.example.com < token.txt',
    )
    .action(exchange);
}

async function exchange(options: TokenOptions, command: CommandLine): Promise<void> {
  const { json, delegation } = options;
  const request = await readRequest(options, command);
  const isDelegation =
    (request.subjectTokenType ?? typeOf(request.subjectToken)) === TOKEN_TYPES['delegation'];
  // Its token works once; without the next one, the delegation would be lost.
  if (isDelegation && delegation === undefined && !json)
    command.error('error: the token of a delegation is replaced by the next one: use --delegation or --json');
  try {
    const tokens = await exchangeToken(request, { clock: systemClock });
    if (delegation !== undefined && tokens.delegation_token !== undefined)
      writeSecretFile(delegation, tokens.delegation_token);
    say(json ? JSON.stringify(tokens) : tokens.access_token);
  } catch (error) {
    if (!(error instanceof LoginFailed)) throw error;
    fail(1, `idp token exchange: ${error.message}`);
  }
}

async function readRequest(options: TokenOptions, command: CommandLine): Promise<ExchangeOptions> {
  const { issuer, client: clientId, resource, scope, delegation, subjectTokenStdin } = options;
  const values = resolveFlags(exchangeSchema, { issuer, clientId, resource, scope });
  const missing = (option: string): never => command.error(`error: ${option} is missing`);
  if (delegation !== undefined && subjectTokenStdin)
    command.error('error: use either --delegation or --subject-token-stdin');
  const required = {
    issuer: values.issuer ?? missing('--issuer'),
    clientId: values.clientId ?? missing('--client'),
    actorToken: values.actorToken ?? missing('IDP_EXCHANGE_ACTOR_TOKEN'),
  };
  const subjectToken =
    delegation !== undefined
      ? readSecretFile('idp token exchange', delegation)
      : subjectTokenStdin
        ? await readPassword(process.stdin)
        : values.subjectToken;
  return {
    ...values,
    ...required,
    subjectToken:
      subjectToken || missing('--delegation, --subject-token-stdin or IDP_EXCHANGE_SUBJECT_TOKEN'),
    subjectTokenType: TOKEN_TYPES[options.subjectTokenType ?? ''],
    actorTokenType: TOKEN_TYPES[options.actorTokenType ?? ''],
  };
}
