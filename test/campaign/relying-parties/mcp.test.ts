/** MCP clients, unchanged, from nothing to a protected tool of the MCP server in `examples`: docs/mcp.md. */
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
    const { clientMetadataUrl } = world;
    const memory = createMemory({ clientMetadataUrl });
    await connectsForPerson(t, memory);
    t.equal(memory.kept.client.client_id, clientMetadataUrl);
  });

  t.test(`${name} connects by registration with an initial access token`, async (t) => {
    const { token } = await idp('registration-token', 'create');
    const memory = createMemory();
    await t.rejects((await open(memory.provider)).connect(), /registration|token/i, 'not without the token');
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

await withOrSkip(inPython, findPython, (python) => {
  /** Its output line by line, and the result. `approve` opens each address that it prints. */
  const run = async (t: Test, mode: string, env: Record<string, string> = {}) => {
    const script = join(compiled('.'), '../test/campaign/relying-parties/python/mcp_client.py');
    const child = spawn(python, [script, mode], {
      env: { PATH: process.env['PATH'], RESOURCE: resource, ISSUER: issuer, CALLBACK, ...env },
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
        const approved = await world.approve(line);
        pages.push(approved.pages);
        child.stdin.write(`${approved.callback}\n`);
      }
    }
    if (results.length === 0) t.fail(`no result: ${(await errors).slice(-3000)}`);
    return { results, pages };
  };

  t.test('The MCP SDK for Python connects with a client metadata document', async (t) => {
    const { clientMetadataUrl } = world;
    const { results, pages } = await run(t, 'document', { CLIENT_METADATA_URL: clientMetadataUrl });
    t.match(results, [{ kind: 'human', client: clientMetadataUrl }, { count: Number }]);
    t.notMatch(pages[0], 'Write notes');
    t.match(pages[1], 'Write notes');
  });

  t.test('The MCP SDK for Python connects by registration with an initial access token', async (t) => {
    const { token } = await idp('registration-token', 'create');
    const { results, pages } = await run(t, 'registration', { REGISTRATION_TOKEN: token });
    t.match(results, [{ kind: 'human', client: /^cid_/ }, { count: Number }]);
    t.equal(pages.length, 2);
  });

  t.test('The MCP SDK for Python connects with client credentials and a secret', async (t) => {
    const { sub, password } = agent;
    const { results } = await run(t, 'secret', { CLIENT_ID: sub, CLIENT_SECRET: password });
    t.match(results, [{ kind: 'agent', subject: sub, client: sub }, { count: Number }]);
  });

  t.test('The MCP SDK for Python connects with client credentials and a key', async (t) => {
    const { sub, key } = keeper;
    const pem = String(key.privateKey.export({ format: 'pem', type: 'pkcs8' }));
    const { results } = await run(t, 'key', { CLIENT_ID: sub, KEY: pem });
    t.match(results, [{ kind: 'agent', subject: sub, client: sub }, { count: Number }]);
  });
});
