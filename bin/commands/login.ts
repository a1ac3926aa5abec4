import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import type { Command } from 'commander';
import { resolveOptions } from '../../src/config/options.js';
import {
  LoginFailed,
  type LoginRequest,
  type LoginTokens,
  logIn,
  loginSchema,
} from '../../src/idp/headless-login.js';
import { systemClock, toSeconds } from '../../src/kernel/clock.js';
import { sha256, systemRandom } from '../../src/kernel/secrets.js';
import { type CommonOptions, examples } from '../command.js';
import { readPassword } from '../password.js';
import { fail, say } from '../terminal.js';

interface LoginOptions extends CommonOptions {
  issuer?: string;
  client?: string;
  handle?: string;
  passwordStdin?: true;
  redirectUri?: string;
  scope?: string;
  cache?: string;
}

const DESCRIPTION = `Sign an agent in without a browser and print its id_token, or all tokens with --json.

Environment variables can replace the options: IDP_LOGIN_ISSUER, IDP_LOGIN_CLIENT_ID, IDP_LOGIN_CLIENT_SECRET, \
IDP_LOGIN_HANDLE, IDP_LOGIN_PASSWORD, IDP_LOGIN_REDIRECT_URI and IDP_LOGIN_SCOPE. A secret can also be read from a file, \
like IDP_LOGIN_PASSWORD_FILE. No secret is an argument, because other users of the machine can read arguments.`;

/** A cached token with less time left is not used. */
const MIN_REMAINING_SECONDS = 60;

export function define(command: Command): void {
  command
    .description(DESCRIPTION)
    .option('--issuer <url>', 'Identity provider')
    .option('--client <client-id>', 'Application to sign in to')
    .option('--handle <handle>', 'Handle of the agent')
    .option('--password-stdin', 'Read the password from standard input')
    .option(
      '--redirect-uri <uri>',
      'Registered redirect URI (default: http://127.0.0.1/callback); no server has to listen there',
    )
    .option('--scope <scopes>', 'Scopes to request (default: "openid email profile")')
    .option('--cache <file>', 'Store the tokens there, readable by the owner only, and reuse them')
    .addHelpText(
      'after',
      examples(
        'idp login --issuer https://id.example.com --client cid_… \\',
        '  --handle scout@agents.example --password-stdin < password.txt',
        'idp login --cache tokens.json --json',
      ),
    )
    .action((options: LoginOptions) => login(options, command));
}

async function login(options: LoginOptions, command: Command): Promise<void> {
  const { password: configured, ...request } = readRequest(options, command);
  const { cache } = options;
  const cached = cache === undefined ? null : readCache(cache, request);
  if (cached) return print(options, cached);
  const password = options.passwordStdin ? await readPassword(process.stdin) : configured;
  if (!password) return missing(command, '--password-stdin or IDP_LOGIN_PASSWORD');
  try {
    const tokens = await logIn({ ...request, password }, { clock: systemClock, random: systemRandom });
    if (cache !== undefined) writeCache(cache, request, tokens);
    print(options, tokens);
  } catch (error) {
    if (!(error instanceof LoginFailed)) throw error;
    fail(1, `idp login: ${error.message}`);
  }
}

function print({ json }: CommonOptions, tokens: LoginTokens): void {
  say(json ? JSON.stringify(tokens) : (tokens.id_token ?? tokens.access_token));
}

function readRequest(
  { issuer, client: clientId, handle, redirectUri, scope }: LoginOptions,
  command: Command,
): Omit<LoginRequest, 'password'> & { password?: string | undefined } {
  const flags = { issuer, clientId, handle, redirectUri, scope };
  const given = Object.fromEntries(Object.entries(flags).filter(([, value]) => value !== undefined));
  const source = { program: 'idp', given, env: undefined, random: systemRandom };
  const { values } = resolveOptions(loginSchema, source);
  return {
    ...values,
    issuer: values.issuer ?? missing(command, '--issuer'),
    clientId: values.clientId ?? missing(command, '--client'),
    handle: values.handle ?? missing(command, '--handle'),
  };
}

function missing(command: Command, option: string): never {
  return command.error(`error: ${option} is missing`);
}

interface Cache extends LoginTokens {
  /** The fingerprint of the request that returned the tokens. */
  request: string;
}

type CacheableRequest = Omit<LoginRequest, 'password' | 'clientSecret'>;

const fingerprint = ({ issuer, clientId, handle, redirectUri, scope }: CacheableRequest): string =>
  sha256(JSON.stringify([issuer, clientId, handle, redirectUri, scope]));

function readCache(file: string, request: CacheableRequest): LoginTokens | null {
  if (!existsSync(file)) return null;
  let cache: Partial<Cache>;
  try {
    cache = JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return fail(1, `idp login: ${file} is not a token cache. Name another file, or remove it.`);
  }
  const { request: cached, ...tokens } = cache as Cache;
  const isFresh =
    cached === fingerprint(request) &&
    tokens.expires_at > toSeconds(systemClock.now()) + MIN_REMAINING_SECONDS;
  return isFresh ? tokens : null;
}

/** Writes atomically; no other user can read the file at any time. */
function writeCache(file: string, request: CacheableRequest, tokens: LoginTokens): void {
  const draft = `${file}.${systemRandom.bytes(6).toString('hex')}`;
  writeFileSync(draft, `${JSON.stringify({ request: fingerprint(request), ...tokens })}\n`, {
    mode: 0o600,
    flag: 'wx',
  });
  renameSync(draft, file);
}
