/** MCP clients, unchanged, from nothing to a protected tool of the MCP server in `examples`: docs/idp/mcp.md. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import * as v2 from '@modelcontextprotocol/client';
import * as extensions from '@modelcontextprotocol/sdk/client/auth-extensions.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import t, { type Test } from 'tap';
import { compiled } from '../../kit/process.js';
import { withOrSkip } from '../../kit/skip.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { CALLBACK, startMcpWorld } from './mcp-world.js';

const world = await startMcpWorld(t);
const { issuer, resource, idp, agent, keeper } = world;

// biome-ignore lint/suspicious/noExplicitAny: two versions of the library, with types of their own
const LIBRARIES: Record<string, any> = {
  'The MCP SDK 1': { ...extensions, Client, StreamableHTTPClientTransport },
  'The MCP client 2': v2,
};

/** What a client remembers, and where it sends the person. */
function createMemory(more: Record<string, unknown> = {}) {
  // biome-ignore lint/suspicious/noExplicitAny: as the libraries pass it
  const kept: any = {};
  const keep = (key: string) => (value: unknown) => {
    kept[key] = value;
  };
  const provider = {
    redirectUrl: CALLBACK,
    clientMetadata: {
      client_name: 'Notes client',
      redirect_uris: [CALLBACK],
      grant_types: ['authorization_code', 'refresh_token'],
      token_endpoint_auth_method: 'none',
    },
    state: () => 'state-of-the-client',
    clientInformation: () => kept.client,
    saveClientInformation: keep('client'),
    tokens: () => kept.tokens,
    saveTokens: keep('tokens'),
    redirectToAuthorization: keep('url'),
    saveCodeVerifier: keep('verifier'),
    codeVerifier: () => kept.verifier,
    discoveryState: () => kept.discovery,
    saveDiscoveryState: keep('discovery'),
    ...more,
  };
  return { kept, provider };
}

// biome-ignore lint/suspicious/noExplicitAny: as above
const readAnswer = (result: any) => JSON.parse(result.content[0].text);

for (const [name, library] of Object.entries(LIBRARIES)) {
  const open = async (authProvider: unknown, options: object = {}) => {
    const transport = new library.StreamableHTTPClientTransport(new URL(resource), {
      authProvider,
      ...options,
    });
    const client = new library.Client({ name: 'test', version: '1.0.0' });
    const call = async (tool: string, args = {}) =>
      readAnswer(await client.callTool({ name: tool, arguments: args }));
    return { transport, client, call, connect: () => client.connect(transport) };
  };

  /** A person connects the client, and later allows more. */
  const connectsForPerson = async (
    t: Test,
    memory: ReturnType<typeof createMemory>,
    options: object = {},
  ) => {
    const { kept, provider } = memory;
    // With a refresh token, the SDK 1 refreshes also when the server asks for a further scope.
    if (library !== v2) provider.clientMetadata.grant_types = ['authorization_code'];
    const approve = async ({ transport }: Awaited<ReturnType<typeof open>>) => {
      t.equal(kept.url.origin, issuer);
      t.equal(kept.url.searchParams.get('resource'), resource);
      const { callback, pages } = await world.approve(kept.url.href);
      t.equal(callback.searchParams.get('state'), 'state-of-the-client');
      await (library === v2
        ? transport.finishAuth(callback.searchParams)
        : transport.finishAuth(callback.searchParams.get('code')));
      return pages;
    };
    const first = await open(provider, options);
    await t.rejects(first.connect(), /Unauthorized/);
    const pages = await approve(first);
    t.match(pages, 'Read your notes');
    t.notMatch(pages, 'Write notes');

    const second = await open(provider, options);
    await second.connect();
    const known = await second.call('whoami');
    t.match(known, { kind: 'human', actors: [], client: kept.client.client_id, scopes: ['notes:read'] });
    t.match(known.subject, /^u_[0-9a-f]{32}$/);

    await t.rejects(
      second.call('add_note', { text: 'Milk' }),
      /Unauthorized/,
      'the person is asked for more',
    );
    t.match(await approve(second), 'Write notes');
    t.match(await second.call('add_note', { text: 'Milk' }), { count: Number });
    await second.client.close();
  };

  t.test(`${name} connects with a client metadata document`, async (t) => {
    const clientMetadataUrl = library === v2 ? world.clientMetadataUrl : world.withoutRefreshUrl;
    const memory = createMemory({ clientMetadataUrl });
    await connectsForPerson(t, memory);
    t.equal(memory.kept.client.client_id, clientMetadataUrl);
  });

  t.test(`${name} connects by registration`, async (t) => {
    const memory = createMemory();
    await connectsForPerson(t, memory);
    t.match(memory.kept.client.client_id, /^cid_/);
  });

  t.test(`${name} connects by registration with an initial access token`, async (t) => {
    const { token } = await idp('registration-token', 'create');
    const memory = createMemory();
    // The libraries know no initial access token, but let the application send its requests.
    const withToken: typeof fetch = (url, init = {}) => {
      const headers = new Headers(init.headers);
      if (new URL(String(url)).href === `${issuer}/register`) headers.set('authorization', `Bearer ${token}`);
      return fetch(url, { ...init, headers });
    };
    await connectsForPerson(t, memory, { fetch: withToken });
    t.match(memory.kept.client.client_id, /^cid_/);
  });

  t.test(`${name} connects an agent, which acts for the person under its own name`, async (t) => {
    const { sub, password } = agent;
    const { kept, provider } = createMemory();
    kept.client = { client_id: sub, client_secret: password, issuer };
    const first = await open(provider);
    await t.rejects(first.connect(), /Unauthorized/);
    const { callback, pages } = await world.approve(kept.url.href);
    t.match(pages, /scout@agents\.example[^.]*a program, asks to act for you/);
    await (library === v2
      ? first.transport.finishAuth(callback.searchParams)
      : first.transport.finishAuth(callback.searchParams.get('code')));
    const known = { kind: 'human', subject: /^u_/, actors: [sub], client: sub, scopes: ['notes:read'] };
    const connect = async () => {
      const next = await open(provider);
      await next.connect();
      t.match(await next.call('whoami'), known);
      await next.client.close();
    };
    await connect();
    // As if it had expired: the library refreshes it.
    kept.tokens = { ...kept.tokens, access_token: 'expired' };
    await connect();
    t.not(kept.tokens.access_token, 'expired');
  });

  t.test(`${name} connects with client credentials and a secret`, async (t) => {
    const { ClientCredentialsProvider } = library;
    const { sub: clientId, password: clientSecret } = agent;
    const provider = new ClientCredentialsProvider({
      ...{ clientId, clientSecret, expectedIssuer: issuer },
      scope: 'notes:read',
    });
    const { connect, call } = await open(provider);
    await connect();
    t.match(await call('whoami'), { subject: clientId, client: clientId, kind: 'agent' });
  });

  t.test(`${name} connects with client credentials and a key`, async (t) => {
    const { PrivateKeyJwtProvider } = library;
    const { sub: clientId, key } = keeper;
    const provider = new PrivateKeyJwtProvider({
      ...{ clientId, algorithm: 'EdDSA', privateKey: key.privateKey.export({ format: 'jwk' }) },
      ...{ expectedIssuer: issuer, scope: 'notes:read notes:write' },
    });
    const { connect, call } = await open(provider);
    await connect();
    t.match(await call('whoami'), { subject: clientId, client: clientId, kind: 'agent' });
    t.match(await call('add_note', { text: 'Milk' }), { count: Number });
  });
}

/** How a client becomes known, what it needs for that, and as whom it calls the tools. */
const MODES = {
  document: {
    title: 'with a client metadata document',
    env: async () => ({ CLIENT_METADATA_URL: world.clientMetadataUrl }),
    caller: { kind: 'human', client: world.clientMetadataUrl },
  },
  registration: {
    title: 'by registration',
    env: async () => ({}),
    caller: { kind: 'human', client: /^cid_/ },
  },
  token: {
    title: 'by registration with an initial access token',
    env: async () => ({ REGISTRATION_TOKEN: (await idp('registration-token', 'create')).token }),
    caller: { kind: 'human', client: /^cid_/ },
  },
  secret: {
    title: 'with client credentials and a secret',
    env: async () => ({ CLIENT_ID: agent.sub, CLIENT_SECRET: agent.password }),
    caller: { kind: 'agent', subject: agent.sub, client: agent.sub },
  },
  key: {
    title: 'with client credentials and a key',
    env: async () => ({
      CLIENT_ID: keeper.sub,
      KEY: String(keeper.key.privateKey.export({ format: 'pem', type: 'pkcs8' })),
    }),
    caller: { kind: 'agent', subject: keeper.sub, client: keeper.sub },
  },
};

type Mode = keyof typeof MODES;

const FOLDER = join(compiled('.'), '../test/campaign/relying-parties');

/**
 * Runs a program that calls the two tools. It prints each address that a person has to visit, and the results. It reads where
 * the person returns to, unless it listens there.
 */
async function run(t: Test, command: string, args: string[], env: Record<string, string>) {
  const child = spawn(command, args, {
    env: {
      ...{ PATH: process.env['PATH'], HOME: temporaryFolder(t) },
      ...{ RESOURCE: resource, ISSUER: issuer, CALLBACK, ...env },
    },
  });
  const closed = once(child, 'close');
  t.teardown(async () => {
    child.kill('SIGKILL');
    await closed;
  });
  const errors = text(child.stderr);
  const pages: string[] = [];
  let results: unknown[] = [];
  for await (const line of createInterface(child.stdout)) {
    if (line.startsWith('[')) results = JSON.parse(line);
    else {
      const { callback, pages: seen } = await world.approve(line);
      pages.push(seen);
      if (callback.port === '') child.stdin.write(`${callback}\n`);
      else
        await waitUntil('the client listens', () =>
          fetch(callback).then(
            () => true,
            () => false,
          ),
        );
    }
  }
  if (results.length === 0) t.fail(`no result: ${(await errors).slice(-3000)}`);
  return { results, pages };
}

function calls(
  name: string,
  [command, ...args]: [string, ...string[]],
  modes: readonly Mode[],
  more = {},
): void {
  for (const mode of modes) {
    const { title, env, caller } = MODES[mode];
    t.test(`${name} connects ${title}`, async (t) => {
      const { results, pages } = await run(t, command, [...args, mode], { ...more, ...(await env()) });
      t.match(results, [caller, { count: Number }]);
      t.match(pages.join(''), caller.kind === 'human' ? 'Read your notes' : /^$/);
    });
  }
}

const inPython = {
  name: 'mcp-python',
  subject: 'The MCP SDK for Python',
  want: 'a Python with the package mcp',
  remedy:
    'Install test/campaign/relying-parties/python/requirements.txt in a virtual environment, and set TEST_PYTHON to its python.',
};
const findPython = async (): Promise<string> => {
  const command = process.env['TEST_PYTHON'] ?? 'python3';
  await promisify(execFile)(command, ['-c', 'import mcp']);
  return command;
};

await withOrSkip(inPython, findPython, (python) =>
  calls(
    'The MCP SDK for Python',
    [python, join(FOLDER, 'python/mcp_client.py')],
    ['document', 'registration', 'token', 'secret', 'key'],
  ),
);

const others = {
  name: 'mcp-clients',
  subject: 'MCP clients in Go and Rust, FastMCP, mcp-remote and the Inspector',
  want: 'the folder with these clients',
  remedy: 'Run test/campaign/relying-parties/mcp-clients.sh with a folder, and set TEST_MCP_CLIENTS to it.',
};
const findClients = async (): Promise<string> => {
  const folder = process.env['TEST_MCP_CLIENTS'];
  if (folder === undefined) throw new Error('TEST_MCP_CLIENTS is not set');
  return folder;
};

await withOrSkip(others, findClients, (folder) => {
  const ways = ['document', 'registration', 'secret'] as const;
  calls('The MCP SDK for Go', [join(folder, 'go')], ways);
  calls('The MCP SDK for Rust', [join(folder, 'rust/debug/mcp-client')], ways);
  calls(
    'FastMCP',
    [join(folder, 'python/bin/python'), join(FOLDER, 'python/fastmcp_client.py')],
    ['registration'],
  );
  const products = { FOLDER: join(folder, 'node_modules') };
  const node = join(folder, 'node/node_modules/.bin/node');
  for (const [name, script] of [
    ['mcp-remote', 'mcp-remote.mjs'],
    ['The MCP Inspector', 'inspector.mjs'],
  ] as const)
    calls(name, [node, join(FOLDER, 'mcp-products', script)], ['registration'], products);
});
