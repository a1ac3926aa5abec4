import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
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
import { type Call, type Command, UsageError } from '../command.js';
import { readPassword } from '../password.js';
import { fail, say } from '../terminal.js';

const login: Command = {
  name: 'login',
  summary: 'signs an agent in without a browser and prints its id_token',
  about: `Each option can be given by environment instead: IDP_LOGIN_ISSUER, _CLIENT_ID, _CLIENT_SECRET, _HANDLE, _PASSWORD,
_REDIRECT_URI and _SCOPE; of secrets also the name of a file (IDP_LOGIN_PASSWORD_FILE). Secrets are never arguments,
which others on the machine could read. With --json all tokens are printed.`,
  options: {
    issuer: { value: '<address>', doc: 'the identity provider' },
    client: { value: '<client-id>', doc: 'the application to sign in at' },
    handle: { value: '<handle>', doc: 'who signs in' },
    'password-stdin': { doc: 'read the password from standard input' },
    'redirect-uri': {
      value: '<uri>',
      doc: 'one that the application has registered (http://127.0.0.1/callback); nobody has to listen there',
    },
    scope: { value: '<scopes>', doc: 'what is asked for ("openid email profile")' },
    cache: {
      value: '<file>',
      doc: 'keep the tokens there, for the owner only, and use them while they are fresh',
    },
  },
  examples: [
    'login --issuer https://id.example.com --client cid_… --handle scout@agents.example --password-stdin < password',
    'login --cache tokens.json --json',
  ],
  run: logInAndTell,
};

export const commands = [login];

/** Seconds that a cached token must live on to be used. */
const FRESH = 60;

async function logInAndTell(call: Call): Promise<void> {
  const { password: known, ...request } = readRequest(call);
  const cache = call.text('cache');
  const cached = cache === undefined ? null : readCache(cache, request);
  if (cached) return tell(call, cached);
  const password = call.isSet('password-stdin') ? await readPassword(process.stdin) : known;
  if (!password) return missing('--password-stdin or IDP_LOGIN_PASSWORD');
  try {
    const tokens = await logIn({ ...request, password }, { clock: systemClock, random: systemRandom });
    if (cache !== undefined) writeCache(cache, request, tokens);
    tell(call, tokens);
  } catch (error) {
    if (!(error instanceof LoginFailed)) throw error;
    fail(1, `idp login: ${error.message}`);
  }
}

function tell({ json }: Call, tokens: LoginTokens): void {
  say(json ? JSON.stringify(tokens) : (tokens.id_token ?? tokens.access_token));
}

function readRequest(call: Call): Omit<LoginRequest, 'password'> & { password?: string | undefined } {
  const flags = {
    issuer: call.text('issuer'),
    clientId: call.text('client'),
    handle: call.text('handle'),
    redirectUri: call.text('redirect-uri'),
    scope: call.text('scope'),
  };
  const given = Object.fromEntries(Object.entries(flags).filter(([, value]) => value !== undefined));
  const source = { program: 'idp', given, env: undefined, random: systemRandom };
  const { values } = resolveOptions(loginSchema, source);
  return {
    ...values,
    issuer: values.issuer ?? missing('--issuer'),
    clientId: values.clientId ?? missing('--client'),
    handle: values.handle ?? missing('--handle'),
  };
}

function missing(what: string): never {
  throw new UsageError(`${what} is missing.`, login);
}

interface Cache extends LoginTokens {
  /** Of the request that brought the tokens. */
  request: string;
}

type Asked = Omit<LoginRequest, 'password' | 'clientSecret'>;

const nameOf = ({ issuer, clientId, handle, redirectUri, scope }: Asked): string =>
  sha256(JSON.stringify([issuer, clientId, handle, redirectUri, scope]));

function readCache(file: string, request: Asked): LoginTokens | null {
  if (!existsSync(file)) return null;
  let cache: Partial<Cache>;
  try {
    cache = JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return fail(1, `idp login: ${file} is no cache of tokens. Name another file, or remove it.`);
  }
  const { request: name, ...tokens } = cache as Cache;
  const isFresh = name === nameOf(request) && tokens.expires_at > toSeconds(systemClock.now()) + FRESH;
  return isFresh ? tokens : null;
}

/** It appears whole or not at all, and nobody else can read it at any time. */
function writeCache(file: string, request: Asked, tokens: LoginTokens): void {
  const draft = `${file}.${systemRandom.bytes(6).toString('hex')}`;
  writeFileSync(draft, `${JSON.stringify({ request: nameOf(request), ...tokens })}\n`, {
    mode: 0o600,
    flag: 'wx',
  });
  renameSync(draft, file);
}
