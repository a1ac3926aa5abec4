import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { request as httpRequest, type IncomingHttpHeaders, type RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import type { Test } from 'tap';
import type { Finding } from '../../../src/core/server/doctor.js';
import { auditOf, openAt, SECRETS } from '../../kit/app.js';
import { compiled, type Program, startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** The real programs behind real proxies, on loopback: 127.0.0.2 and 127.0.0.4 are two clients. */

export const run = promisify(execFile);

/** Debian installs servers in folders that are only in root's PATH. */
process.env['PATH'] += ':/usr/sbin';

/** A code block of docs/operate/proxy.md, by its language. */
export function snippet(language: string): string {
  const page = readFileSync(join(compiled('.'), '../docs/operate/proxy.md'), 'utf8');
  const block = new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(page)?.[1];
  if (block === undefined) throw new Error(`docs/operate/proxy.md has no ${language}`);
  return block;
}

export interface Certificate {
  cert: string;
  key: string;
  pem: string;
}

/** A self-signed certificate for both names. */
export async function selfSigned(folder: string): Promise<Certificate> {
  const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  const names = 'subjectAltName=DNS:app.example,DNS:id.example';
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  const to = ['-keyout', key, '-out', cert];
  await run('openssl', ['req', '-x509', ...kind, '-subj', '/CN=app.example', '-addext', names, ...to]);
  return { cert, key, pem: readFileSync(cert, 'utf8') };
}

export interface Question {
  /** The target: a port of 127.0.0.1. */
  port: number;
  /** Uses https with this host name. Absent: http. */
  name?: string;
  pem?: string;
  /** The address of the client. */
  from?: string;
  method?: string;
  path?: string;
  headers?: Record<string, string>;
  body?: string;
}

export interface Reply {
  status: number;
  headers: IncomingHttpHeaders;
  /** All headers, in order, including repeated ones. */
  rawHeaders: string[];
  text: string;
}

export function ask(question: Question): Promise<Reply> {
  const { port, name, pem, from = '127.0.0.1', method = 'GET', path = '/health', headers, body } = question;
  const options: RequestOptions = {
    host: '127.0.0.1',
    port,
    localAddress: from,
    method,
    path,
    agent: false,
    headers: { ...(name && { host: name }), ...headers },
  };
  return new Promise((resolve, reject) => {
    const request = name ? httpsRequest({ ...options, servername: name, ca: pem }) : httpRequest(options);
    request.on('error', reject);
    request.on('response', async (response) => {
      const { statusCode = 0, headers, rawHeaders } = response;
      resolve({ status: statusCode, headers, rawHeaders, text: await text(response).catch(() => '') });
    });
    request.end(body);
  });
}

const SAAS = {
  script: compiled('bin/saas-backend.js'),
  args: [],
  proxyVariable: 'TRUST_PROXY',
  database: 'app.db',
  environment: (host: string, port: string) => ({
    DATABASE_URI: 'sqlite:app.db',
    PUBLIC_URL: 'https://app.example',
    JWT_ACCESS_SECRET: SECRETS.jwtAccessSecret,
    JWT_REFRESH_SECRET: SECRETS.jwtRefreshSecret,
    ADMIN_PASSWORD: SECRETS.adminPassword,
    HOST: host,
    PORT: port,
  }),
  /** A wrong operator secret: audited and limited to ten a minute, and no password is hashed. */
  wrongGuess: {
    path: '/admin/api/settings',
    headers: { authorization: `Basic ${btoa('admin:wrong')}` },
  },
};

const IDP = {
  script: compiled('bin/idp.js'),
  args: ['serve'],
  proxyVariable: 'IDP_TRUST_PROXY',
  database: 'idp.db',
  environment: (host: string, port: string) => ({
    IDP_DATABASE_URI: 'sqlite:idp.db',
    IDP_PUBLIC_URL: 'https://id.example',
    IDP_ED25519_SEED: '5d9c1e8a70f3b264c6e1d8f05a9b3742e7160fca8d35b94c2e6f01a7d8c3b549',
    IDP_ADMIN_TOKEN: 'operator-Vw3kLq8ZsT1mXe6YbN0cRj4HuPd9',
    IDP_HOST: host,
    IDP_PORT: port,
  }),
  wrongGuess: {
    method: 'POST',
    path: '/v1/agents',
    headers: { authorization: 'Bearer wrong', 'content-type': 'application/json' },
    body: '{"handle":"scout@agents.example"}',
  },
};

export const PRODUCTS = { saas: SAAS, idp: IDP };

export interface Backend {
  port: number;
  program: Program;
  wrongGuess: Omit<Question, 'port'>;
  /** Ends it with SIGTERM and starts it again at the same port. */
  restart(): Promise<void>;
  /** The addresses in the audit log, the latest last. */
  audited(): Promise<string[]>;
  /** Its log lines about proxies. */
  complaints(): string[];
  /** The findings of `doctor` about the proxy, while the program runs. */
  diagnosis(): Promise<Finding[]>;
}

/** One of the two programs, in production. */
export async function startBackend(
  t: Test,
  product: keyof typeof PRODUCTS,
  {
    trust,
    host = '127.0.0.1',
    folder: cwd = temporaryFolder(t),
  }: { trust?: string; host?: string; folder?: string } = {},
): Promise<Backend> {
  const { script, args, proxyVariable, database, environment, wrongGuess } = PRODUCTS[product];
  const env = (port: string) => ({
    NODE_ENV: 'production',
    ...environment(host, port),
    ...(trust !== undefined && { [proxyVariable]: trust }),
  });
  let program = startProgram(t, script, { args, cwd, env: env('0') });
  const port = Number(new URL(await program.url()).port);
  const store = await openAt(t, `sqlite:${join(cwd, database)}`);
  return {
    port,
    get program() {
      return program;
    },
    wrongGuess,
    async restart() {
      await program.terminate();
      program = startProgram(t, script, { args, cwd, env: env(String(port)) });
      await program.url();
    },
    audited: async () => (await auditOf(store)).map(({ ip }) => ip),
    complaints: () => program.lines.filter((line) => line.includes('X-Forwarded-For header is ignored')),
    async diagnosis() {
      const doctor = startProgram(t, script, { args: ['doctor', '--json'], cwd, env: env(String(port)) });
      await doctor.ended();
      const { findings } = JSON.parse(doctor.lines.join('')) as { findings: Finding[] };
      return findings.filter(({ about }) => about === proxyVariable);
    },
  };
}

/** Clients that send requests one after another while `work` runs. Returns how many were sent, and what some got instead of an answer. */
export async function underLoad(
  send: (question: Omit<Question, 'port' | 'name'>) => Promise<Reply>,
  work: () => Promise<void>,
): Promise<{ sent: number; lost: string[] }> {
  const lost: string[] = [];
  let sent = 0;
  let isOver = false;
  const lane = async (question: Omit<Question, 'port' | 'name'>) => {
    while (!isOver) {
      sent++;
      const outcome = await send(question).then(
        ({ status }) => (status >= 500 ? String(status) : undefined),
        (error: Error) => error.message,
      );
      if (outcome !== undefined) lost.push(outcome);
    }
  };
  const json = { 'content-type': 'application/json' };
  const write = { method: 'POST', path: '/api/auth/login', headers: json, body: '{}' };
  const lanes = [{}, {}, {}, write, write].map(lane);
  await work().finally(() => {
    isOver = true;
  });
  await Promise.all(lanes);
  return { sent, lost };
}
