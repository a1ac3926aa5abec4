import type { Test } from 'tap';
import { type Answer, parseJson, testOptions } from './app.js';
import { compiled, type Program, startProgram } from './process.js';
import { temporaryFolder } from './tmp.js';

/** Four processes of saas-backend on one store, with the system clock. */

export const PROCESSES = 4;

export interface Processes {
  programs: Program[];
  urls: string[];
  /** With which each of them was started. */
  options: { databaseUri: string };
}

export async function startAll(t: Test, more: object = {}): Promise<Processes> {
  const options = { ...testOptions(temporaryFolder(t)), logLevel: 'info', ...more };
  const start = () =>
    startProgram(t, compiled('test/kit/saas-server.js'), { args: [JSON.stringify(options)] });
  const programs = Array.from({ length: PROCESSES }, start);
  return { programs, urls: await Promise.all(programs.map((program) => program.url())), options };
}

export interface Posted {
  status: number;
  body: Answer['body'];
}

export async function post(
  url: string,
  body?: object,
  { token, method = 'POST' }: { token?: string; method?: string } = {},
): Promise<Posted> {
  const headers = {
    ...(body && { 'content-type': 'application/json' }),
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
  };
  const response = await fetch(url, { method, headers, ...(body && { body: JSON.stringify(body) }) });
  return { status: response.status, body: parseJson(await response.text()) as Answer['body'] };
}

/** `count` calls, spread over all processes. */
export const spread = <T>(
  urls: string[],
  count: number,
  call: (url: string, index: number) => Promise<T>,
): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, (_, index) => call(urls[index % urls.length] as string, index)));
