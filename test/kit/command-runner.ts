/**
 * Runs commands one after another in one process, as the programs do in a process each: loading them takes longer than most commands.
 * Started by `command-line.ts`; `test/bin/programs.test.ts` starts the programs themselves.
 */
import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { compiled } from './process.js';

export interface Command {
  program: 'idp' | 'saas-backend';
  args: string[];
  /** The whole environment. */
  env: Record<string, string | undefined>;
  cwd: string;
  stdin: string;
}

export interface Result {
  code: number;
  out: string;
  err: string;
}

/** Thrown where a program ends its process. Not an error, which the program could handle. */
class Exit {
  readonly code: number;
  constructor(code: number) {
    this.code = code;
  }
}

const endProcess = process.exit.bind(process);
process.exit = ((code?: number) => {
  throw new Exit(code ?? Number(process.exitCode ?? 0));
}) as typeof process.exit;
for (const emitter of [process, process.stdout, process.stderr]) emitter.setMaxListeners(0);

let count = 0;

async function run({ program, args, env, cwd, stdin }: Command): Promise<Result> {
  const printed = { out: '', err: '' };
  const into = (name: keyof typeof printed) =>
    ((text: string | Uint8Array) => {
      printed[name] += typeof text === 'string' ? text : Buffer.from(text).toString();
      return true;
    }) as typeof process.stdout.write;
  process.stdout.write = into('out');
  process.stderr.write = into('err');
  const input = Readable.from(stdin === '' ? [] : [Buffer.from(stdin)], { objectMode: false });
  Object.defineProperty(process, 'stdin', { value: input, configurable: true });
  const script = compiled(`bin/${program}.js`);
  process.argv = [process.execPath, script, ...args];
  process.exitCode = undefined;
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, env);
  process.chdir(cwd);
  try {
    // Only this file is evaluated again; what it imports is loaded.
    await import(`${pathToFileURL(script).href}?${++count}`);
    return { code: Number(process.exitCode ?? 0), ...printed };
  } catch (error) {
    if (error instanceof Exit) return { code: error.code, ...printed };
    return { code: 1, out: printed.out, err: `${printed.err}${(error as Error).stack}\n` };
  } finally {
    process.exitCode = undefined;
    // The end of a process closes the files of a database; here, the drop-in for node:sqlite does so with its last statement.
    if (args[0] === 'doctor') await collectGarbage();
  }
}

async function collectGarbage(): Promise<void> {
  (globalThis as { gc?: () => void }).gc?.();
  // Native objects end after the collection.
  await setImmediate();
}

let last: Promise<unknown> = Promise.resolve();
process.on('message', ({ id, command }: { id: number; command: Command }) => {
  last = last.then(async () => process.send?.({ id, result: await run(command) }));
});
process.once('disconnect', () => endProcess());
