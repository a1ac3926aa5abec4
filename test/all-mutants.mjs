/** Runs the mutants of every room, two rooms at a time, and prints each room's output when it has ended. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { text } from 'node:stream/consumers';

/** Most tests wait for one process, so two of them share two processors. */
const ROOMS_AT_A_TIME = 2;

/** The rooms that take longest begin. */
const LONGEST = ['oidc', 'billing', 'torture', 'auth', 'passkeys'];

const rooms = readdirSync('test').filter((room) => existsSync(`test/${room}/mutants.mjs`));
const rank = (room) => (LONGEST.includes(room) ? LONGEST.indexOf(room) : LONGEST.length);
const queue = rooms.sort((one, other) => rank(one) - rank(other)).values();
let isSurvived = false;

async function run(room) {
  const child = spawn(process.execPath, [`test/${room}/mutants.mjs`], { stdio: ['ignore', 'pipe', 'pipe'] });
  const [out, err, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ]);
  process.stdout.write(
    `\n----- ${room}: ${code === 0 ? 'all caught' : `exit code ${code}`} -----\n${out}${err}`,
  );
  if (code !== 0) isSurvived = true;
}

await Promise.all(
  Array.from({ length: ROOMS_AT_A_TIME }, async () => {
    for (const room of queue) await run(room);
  }),
);
process.exitCode = isSurvived ? 1 : 0;
