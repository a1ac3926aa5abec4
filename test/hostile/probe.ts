/** Loaded into a program with `--import`: on SIGWINCH it prints what no answer tells. */

/** Milliseconds between two looks. */
const INTERVAL = 5;

/** Processor time, in milliseconds: what other programs of the machine do does not count. */
const worked = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

let last = worked();
let longest = 0;
let looks = 0;

/** Between two turns of the loop nobody else is served. */
const look = (): void => {
  const now = worked();
  longest = Math.max(longest, now - last);
  last = now;
};

setInterval(look, INTERVAL).unref();

process.on('SIGWINCH', () => {
  look();
  const inherited: string[] = [];
  for (const name in {}) inherited.push(name);
  process.stdout.write(`probe ${JSON.stringify({ look: ++looks, longest, inherited })}\n`);
  longest = 0;
});
