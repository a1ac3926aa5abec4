/** Programs that have just started, without requests. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Program, residentMemory } from './lab.js';
import type { Result } from './report.js';
import { atMost, type Bench, median } from './rounds.js';

/** The start-up time of a program, and its memory while idle. */
export async function start(bench: Bench): Promise<Result[]> {
  const names: Program[] = ['saas-backend', 'idp'];
  const results: Result[] = [];
  for (const name of names) {
    const starts: Idle[] = [];
    const bare: Idle[] = [];
    for (let round = 0; round < (bench.quick ? 1 : 9); round++) {
      bench.progress(`${bench.row}: ${name}, start ${round + 1}`);
      bare.push(await idle(bench, () => bench.lab.floor('hello')));
      starts.push(await idle(bench, () => bench.lab.program(name, bench.row)));
    }
    const [began, bareBegan] = [starts, bare].map((runs) => median(runs.map(({ startedIn }) => startedIn)));
    const [held, bareHeld] = [starts, bare].map((runs) => median(runs.map(({ memory }) => memory)));
    results.push(
      slower(`${name} listens after`, began as number, bareBegan as number),
      atMost(`${name} holds idle`, 'MiB', held as number, 110, bareHeld as number),
    );
  }
  return results;
}

/** From Node.js 22 on, the programs use its compile cache. */
const MOST_OF_HELLO = Number.parseInt(process.versions.node, 10) < 22 ? 3.5 : 2.5;

function slower(what: string, value: number, hello: number): Result {
  const ratio = value / hello;
  const goal = { text: `≤ ${MOST_OF_HELLO}`, met: ratio <= MOST_OF_HELLO };
  return { what, value, unit: 'ms', floor: { name: 'hello', value: hello }, ratio, goal };
}

interface Idle {
  startedIn: number;
  memory: number;
}

async function idle({ lab }: Bench, serve: () => ReturnType<Bench['lab']['floor']>): Promise<Idle> {
  const { startedIn, pid } = await serve();
  await sleep(500);
  const memory = residentMemory(pid) ?? Number.NaN;
  await lab.clear();
  return { startedIn, memory };
}
