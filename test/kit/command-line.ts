import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { Test } from 'tap';
import { compiled } from './process.js';
import { temporaryFolder } from './tmp.js';

/** What a command came to. */
export interface Typed {
  code: number | null;
  out: string;
  err: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert what stands in it
  json: any;
}

/** A command on a store of its own, or on that of a server. */
export function commandLine(t: Test, env: Record<string, string> = {}) {
  const cwd = temporaryFolder(t);
  const file = join(cwd, 'data/idp.db');
  return {
    cwd,
    file,
    async type(args: string[], { stdin = '', more = {} as Record<string, string> } = {}): Promise<Typed> {
      const child = spawn(process.execPath, [compiled('package/bin/idp.js'), ...args], {
        cwd,
        env: { PATH: process.env['PATH'], ...env, ...more },
      });
      child.stdin.end(stdin);
      const [out, err, [code]] = await Promise.all([
        text(child.stdout),
        text(child.stderr),
        once(child, 'close'),
      ]);
      const json = args.includes('--json') && code === 0 ? JSON.parse(out) : undefined;
      return { code: code as number | null, out, err, json };
    },
  };
}
