import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Test } from 'tap';
import { Agent } from '../../kit/agent.js';
import { type ClientKey, clientKey } from '../../kit/client-keys.js';
import { runProgram } from '../../kit/command-line.js';
import { serverPort } from '../../kit/port.js';
import { compiled, startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** Everything that an MCP client meets: idp, the MCP server of `examples`, and the host of a client metadata document. */

export interface McpWorld {
  issuer: string;
  /** The address of the MCP server, which is its identifier as a resource. */
  resource: string;
  /** A document that a public client with a redirect to this machine publishes. */
  clientMetadataUrl: string;
  /** The same of a client that asks for no refresh tokens. */
  withoutRefreshUrl: string;
  /** The certificate of its host. */
  certificate: string;
  agent: { sub: string; password: string };
  /** The agent's own key; the agent has no password. */
  keeper: { sub: string; key: ClientKey };
  /** A command on the host of idp. @throws if it fails */
  // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
  idp(...args: string[]): Promise<any>;
  /** The person signs in and allows what the page asks for. Returns the redirect to the client, and what the pages said. */
  approve(url: string): Promise<{ callback: URL; pages: string }>;
}

export const CALLBACK = 'http://127.0.0.1/callback';

const PERSON = { handle: 'ada@people.example', password: 'correct horse battery staple' };

export async function startMcpWorld(t: Test): Promise<McpWorld> {
  const cwd = temporaryFolder(t);
  const documents = await startDocuments(t, cwd);
  const program = startProgram(t, compiled('bin/idp.js'), {
    cwd,
    args: ['serve', '-port', '0'],
    env: {
      IDP_MCP: 'true',
      IDP_LOOPBACK_DOCUMENTS: '1',
      NODE_EXTRA_CA_CERTS: documents.certificate,
    },
  });
  const issuer = (await program.url()).replace('127.0.0.1', 'localhost');
  const idp = async (...args: string[]) => {
    const { code, json, err } = await runProgram('idp', [...args, '--json'], {}, { cwd });
    if (code !== 0) throw new Error(`idp ${args.join(' ')}: ${err}`);
    return json;
  };
  const port = await serverPort();
  const resource = `http://127.0.0.1:${port}/mcp`;
  await idp('resource', 'add', resource, '--scopes', 'notes:read=Read your notes,notes:write=Write notes');
  const server = startProgram(t, join(compiled('.'), '../examples/mcp-server.mjs'), {
    env: { PORT: String(port), ISSUER: issuer },
  });
  await server.url();
  const key = clientKey();
  writeFileSync(join(cwd, 'jwk.json'), JSON.stringify(key.jwk));
  const { sub } = await idp('agent', 'mint', 'keeper@agents.example', '--key', 'jwk.json');
  const agent = await idp('agent', 'mint', 'scout@agents.example');
  for (const name of ['keeper', 'scout']) {
    await idp('agent', 'allow', `${name}@agents.example`, resource);
    await idp('agent', 'update', `${name}@agents.example`, '--redirect-uris', CALLBACK);
  }
  await invite(issuer.replace(/\/$/, ''), (await idp('invite', PERSON.handle)).invite_url);
  return {
    ...{ issuer, resource, idp, agent, keeper: { sub, key } },
    ...{ clientMetadataUrl: `${documents.origin}/client.json`, certificate: documents.certificate },
    withoutRefreshUrl: `${documents.origin}/without-refresh.json`,
    approve: (url) => approve(issuer, url),
  };
}

async function invite(origin: string, url: string): Promise<void> {
  const { password } = PERSON;
  const browser = new Agent({ origin });
  await browser.submit(await browser.open(url), { password, password_confirm: password });
}

async function approve(issuer: string, url: string): Promise<{ callback: URL; pages: string }> {
  const browser = new Agent({ origin: issuer });
  let page = await browser.open(url);
  let pages = page.body;
  page = await browser.submit(page, PERSON);
  while (page.location === undefined) {
    if (page.status !== 200) throw new Error(`${page.status}: ${page.body}`);
    pages += page.body;
    page = await browser.submit(page, { decision: 'allow' });
  }
  return { callback: new URL(page.location), pages };
}

/** The host of client metadata documents, with TLS: SDKs require https. */
async function startDocuments(t: Test, folder: string): Promise<{ origin: string; certificate: string }> {
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  const subject = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'];
  execFileSync('openssl', ['req', '-x509', ...curve, '-keyout', key, '-out', cert, ...subject], {
    stdio: 'pipe',
  });
  const server = createServer(
    { key: readFileSync(key), cert: readFileSync(cert) },
    ({ url = '' }, response) => {
      const refreshes = !url.includes('without-refresh');
      response.writeHead(200, { 'content-type': 'application/json' }).end(
        JSON.stringify({
          client_id: origin + url,
          client_name: 'Notes client',
          redirect_uris: [CALLBACK],
          grant_types: ['authorization_code', ...(refreshes ? ['refresh_token'] : [])],
          response_types: ['code'],
          token_endpoint_auth_method: 'none',
        }),
      );
    },
  ).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { origin, certificate: cert };
}
