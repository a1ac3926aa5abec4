import { existsSync, readFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import type { DeviceAuthorizationResponse } from 'openid-client';
import { systemClock, toSeconds } from '../../src/core/kernel/clock.js';
import { sha256, systemRandom } from '../../src/core/kernel/secrets.js';
import { logInOnDevice } from '../clients/device-login.js';
import { logIn, loginSchema } from '../clients/headless-login.js';
import { LoginFailed, type LoginTokens, type ProviderRequest } from '../clients/provider-client.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { resolveFlags } from '../options.js';
import { readPassword } from '../password.js';
import { writeSecretFile } from '../secret-file.js';
import { complain, fail, say } from '../terminal.js';

interface LoginOptions extends CommonOptions {
  issuer?: string;
  client?: string;
  handle?: string;
  passwordStdin?: true;
  redirectUri?: string;
  scope?: string;
  resource?: string;
  device?: true;
  cache?: string;
}

const DESCRIPTION = `Sign an agent in without a browser and print its id_token, the access token with --resource, or all tokens with \
--json. With --device, a person signs in with a browser of any other device.

Environment variables can replace the options: IDP_LOGIN_ISSUER, IDP_LOGIN_CLIENT_ID, IDP_LOGIN_CLIENT_SECRET, \
IDP_LOGIN_HANDLE, IDP_LOGIN_PASSWORD, IDP_LOGIN_REDIRECT_URI, IDP_LOGIN_SCOPE and IDP_LOGIN_RESOURCE. A secret can also be read \
from a file, like IDP_LOGIN_PASSWORD_FILE. No secret is an argument, because other users of the machine can read arguments.`;

/** A cached token with less time left is not used. */
const MIN_REMAINING_SECONDS = 60;

export function define(command: CommandLine): void {
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
    .option('--resource <uri>', 'API that the access token is for')
    .option('--device', 'Show a code that a person enters in a browser')
    .option('--cache <file>', 'Store the tokens there, readable by the owner only, and reuse them')
    .examples(
      'idp login --issuer https://id.example.com --client cid_… \\',
      '  --handle scout@agents.example --password-stdin < password.txt',
      'idp login --resource https://api.example.com --scope files:read',
      'idp login --device --client cid_… --cache tokens.json',
    )
    .action(login);
}

async function login(options: LoginOptions, command: CommandLine): Promise<void> {
  const { password: configured, ...request } = readRequest(options, command);
  const { cache, device } = options;
  const cached = cache === undefined ? null : readCache(cache, request);
  if (cached) return print(options, request, cached);
  try {
    const tokens = device
      ? await logInOnDevice(request, { clock: systemClock, wait: setTimeout, show })
      : await withPassword(options, { ...request, configured }, command);
    if (cache !== undefined) writeCache(cache, request, tokens);
    print(options, request, tokens);
  } catch (error) {
    if (!(error instanceof LoginFailed)) throw error;
    fail(1, `idp login: ${error.message}`);
  }
}

async function withPassword(
  { passwordStdin }: LoginOptions,
  { configured, ...request }: Request & { configured: string | undefined },
  command: CommandLine,
): Promise<LoginTokens> {
  const handle = request.handle ?? missing(command, '--handle');
  const password = passwordStdin ? await readPassword(process.stdin) : configured;
  if (!password) return missing(command, '--password-stdin or IDP_LOGIN_PASSWORD');
  return logIn({ ...request, handle, password }, { clock: systemClock, random: systemRandom });
}

/** Not to stdout, which gets the token. */
function show({
  user_code: code,
  verification_uri: uri,
  verification_uri_complete: complete,
}: DeviceAuthorizationResponse): void {
  complain(`Open ${uri} and enter the code ${code}`);
  if (complete !== undefined) complain(`or open ${complete}`);
  if (process.stderr.isTTY) complain('Waiting until you have decided …');
}

/** The caller of an API needs the access token, an application that asks who the agent is needs the id_token. */
function print({ json }: CommonOptions, { resource }: Request, tokens: LoginTokens): void {
  const idToken = resource === undefined ? tokens.id_token : undefined;
  say(json ? JSON.stringify(tokens) : (idToken ?? tokens.access_token));
}

interface Request extends ProviderRequest {
  /** Absent with `--device`. */
  handle?: string | undefined;
  redirectUri: string;
}

function readRequest(
  { issuer, client: clientId, handle, redirectUri, scope, resource, device, passwordStdin }: LoginOptions,
  command: CommandLine,
): Request & { password?: string | undefined } {
  if (device && (handle !== undefined || passwordStdin))
    command.error('error: --device takes no handle and no password: the person signs in with a browser');
  const flags = { issuer, clientId, handle, redirectUri, scope, resource };
  const { handle: named, ...values } = resolveFlags(loginSchema, flags);
  return {
    ...values,
    issuer: values.issuer ?? missing(command, '--issuer'),
    clientId: values.clientId ?? missing(command, '--client'),
    ...(!device && { handle: named ?? missing(command, '--handle') }),
  };
}

function missing(command: CommandLine, option: string): never {
  return command.error(`error: ${option} is missing`);
}

interface Cache extends LoginTokens {
  /** The fingerprint of the request that returned the tokens. */
  request: string;
}

const fingerprint = ({ issuer, clientId, handle, redirectUri, scope, resource }: Request): string =>
  sha256(JSON.stringify([issuer, clientId, handle ?? null, redirectUri, scope, resource ?? null]));

function readCache(file: string, request: Request): LoginTokens | null {
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

function writeCache(file: string, request: Request, tokens: LoginTokens): void {
  writeSecretFile(file, JSON.stringify({ request: fingerprint(request), ...tokens }));
}
