/** The conformance program of MCP against idp and the example server: `npm run test:mcp`. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { stripVTControlCharacters } from 'node:util';
import t, { type Test } from 'tap';
import { foreignIssuer, issuerKey } from '../../kit/identity-assertions.js';
import { serverPort } from '../../kit/port.js';
import { compiled } from '../../kit/process.js';
import { withOrSkip } from '../../kit/skip.js';
import { SUBJECT, workloadToken } from '../../kit/workloads.js';
import { startMcpWorld } from './mcp-world.js';
import { listTools } from './workload-client.js';

const PACKAGE = '@modelcontextprotocol/conformance@0.2.0-alpha.12';

/** Of those that the example has something for; the others test tools, prompts and resources of another example. */
const SERVER_SCENARIOS = ['server-initialize', 'ping', 'tools-list', 'dns-rebinding-protection'];

/** Runs the program to its end. `onLine` sees its output. */
async function conformance(
  t: Test,
  args: string[],
  onLine: (line: string) => void = () => undefined,
): Promise<string> {
  const child: ChildProcess = spawn('npx', ['--yes', PACKAGE, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  const lines: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    if (!stream) continue;
    createInterface(stream).on('line', (line) => {
      const plain = stripVTControlCharacters(line);
      lines.push(plain.slice(0, 300));
      onLine(plain);
    });
  }
  const [code] = await once(child, 'close');
  const output = lines.join('\n');
  if (code !== 0) t.comment(output);
  t.equal(code, 0);
  return output;
}

const world = await startMcpWorld(t);
const { issuer, resource, idp } = world;

const program = {
  name: 'mcp-conformance',
  subject: 'The conformance program of MCP',
  want: 'a Node 22 or newer',
  remedy: 'Run `npm run test:mcp` on Node 22 or newer, with access to a registry.',
};
const findProgram = async (): Promise<void> => {
  const [major = ''] = process.versions.node.split('.');
  if (Number(major) < 22) throw new Error(`Node ${process.versions.node} is too old`);
};

await withOrSkip(program, findProgram, () => {
  // With a secret, the program sends none to a provider that also supports public clients, and is refused.
  t.test('the scenarios for authorization servers pass', async (t) => {
    const port = await serverPort();
    const client = await idp('client', 'create', `http://127.0.0.1:${port}/callback`, '--public');
    const args = ['authorization', '--url', issuer, '--client-id', client.client_id, '--resource', resource];
    const visited: Promise<unknown>[] = [];
    const output = await conformance(t, [...args, '-p', String(port)], (line) => {
      const [url] = /^http\S+\/authorize\?\S+/.exec(line) ?? [];
      if (url !== undefined) visited.push(world.approve(url).then(({ callback }) => fetch(callback)));
    });
    await Promise.all(visited);
    t.match(output, /authorization-server-metadata-endpoint: [1-9]\d* passed, 0 failed/);
    t.match(output, /authorization-code-grant: [1-9]\d* passed, 0 failed/);
    t.notMatch(output, /warning/i);
  });

  t.test('a client with the token of a workload passes its scenario, and uses idp unchanged', async (t) => {
    const command = `${process.execPath} ${compiled('test/campaign/relying-parties/workload-client.js')}`;
    const output = await conformance(t, [
      'client',
      '--command',
      command,
      '--scenario',
      'auth/wif-jwt-bearer',
    ]);
    t.match(output, /Passed: (\d+)\/\1, 0 failed, 0 warnings/);
    const platform = await foreignIssuer(t, issuerKey('RS256'));
    const rule = ['--issuer', platform.issuer, '--subject', SUBJECT];
    await idp('agent', 'trust', 'add', 'scout@agents.example', ...rule);
    const aud = issuer.replace(/\/$/, '');
    const assertion = await workloadToken(platform, Date.now(), { aud });
    const tools = await listTools(resource, { clientId: world.agent.sub, assertion });
    t.ok(tools.length > 0);
    const other = await workloadToken(platform, Date.now(), { aud, sub: 'repo:acme/other' });
    await t.rejects(listTools(resource, { clientId: world.agent.sub, assertion: other }));
  });

  t.test('the scenarios for servers pass that need no other tools', async (t) => {
    const proxy = await startProxy(t, world.agent);
    for (const scenario of SERVER_SCENARIOS) {
      const output = await conformance(t, ['server', '--url', proxy, '--scenario', scenario]);
      t.match(output, /Passed: (\d+)\/\1, 0 failed, 0 warnings/, scenario);
    }
  });
});

/** The program cannot sign in, so a proxy adds an access token to its requests. */
async function startProxy(t: Test, { sub, password }: { sub: string; password: string }): Promise<string> {
  const answer = await fetch(`${issuer}/token`, {
    method: 'POST',
    headers: { authorization: `Basic ${Buffer.from(`${sub}:${password}`).toString('base64')}` },
    body: new URLSearchParams({
      grant_type: 'client_credentials',
      resource,
      scope: 'notes:read notes:write',
    }),
  });
  const { access_token: token } = (await answer.json()) as { access_token: string };
  const { host } = new URL(resource);
  const server = createServer((incoming, outgoing) => {
    const own = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const headers = { ...incoming.headers, authorization: `Bearer ${token}` };
    if (headers.host === own || headers.host === own.replace('127.0.0.1', 'localhost')) headers.host = host;
    if (headers.origin) headers.origin = headers.origin.replace(own, host);
    const sent = request(new URL(incoming.url ?? '/', resource), {
      method: incoming.method ?? 'GET',
      headers,
    });
    sent.on('response', (response) => {
      outgoing.writeHead(response.statusCode ?? 502, response.headers);
      response.pipe(outgoing);
    });
    sent.on('error', () => outgoing.destroy());
    incoming.pipe(sent);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
}
