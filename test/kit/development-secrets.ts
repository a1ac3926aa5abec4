/**
 * Creates 200 files of development secrets, each at a moment shared by all processes, and prints the secrets
 * it received.
 */
import { loadDevelopmentSecrets } from '../../src/core/config/development-secrets.js';
import { newToken, sha256, systemRandom } from '../../src/core/kernel/secrets.js';

const ROUNDS = 200;
/** Longer than one round takes, so that no process is late for the next. */
const PERIOD = 5;

const given: unknown[] = [];
process.once('SIGUSR2', () => {
  const start = Math.ceil(Date.now() / 100) * 100 + 200;
  for (let round = 0; round < ROUNDS; round++) {
    // Busy waiting: a timer is less precise than the race is long.
    while (Date.now() < start + round * PERIOD);
    const make = () => newToken(systemRandom);
    given.push(loadDevelopmentSecrets(`data/${round}.json`, { ONE: make, TWO: make }, systemRandom));
  }
  console.log(`secrets ${sha256(JSON.stringify(given))}`);
  process.exit();
});
// Keeps the process alive until the signal.
setInterval(() => undefined, 1000);
console.log('ready');
