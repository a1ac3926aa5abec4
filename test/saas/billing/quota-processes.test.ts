import t, { type Test } from 'tap';
import { onEngines } from '../../core/storage/engines.js';
import { PASSWORD } from '../../kit/app.js';
import { post, startAll } from '../../kit/saas-processes.js';

/** Four processes that use one limit while one of them is killed, with the system clock. */

const LIMIT = 300;
const CALLERS = 32;

async function race(t: Test, databaseUri: string): Promise<void> {
  const billing = { plans: { free: { limits: { answers: LIMIT } } } };
  const { urls, programs } = await startAll(t, { databaseUri, billing });
  const account = { email: 'ada@example.test', password: PASSWORD };
  const { id } = (await post(`${urls[0]}/api/auth/register`, account)).body.data.user;

  let [allowed, unknown] = [0, 0];
  const isLeft = async (url: string): Promise<boolean> => {
    const answer = await post(`${url}/answer/${id}`).catch(() => null);
    if (answer?.status !== 200) unknown++;
    else if ((answer.body as unknown as { allowed: boolean }).allowed) allowed++;
    else return false;
    if (allowed === LIMIT / 3) await programs[0]?.kill();
    return answer !== null;
  };
  const caller = async (url = '') => {
    while (await isLeft(url));
  };
  await Promise.all(Array.from({ length: CALLERS }, (_, index) => caller(urls[index % urls.length])));

  // Only what the killed process did not answer may have been counted without having been allowed.
  t.ok(allowed <= LIMIT, `${allowed} of ${LIMIT} were allowed`);
  t.ok(allowed + unknown >= LIMIT, `${unknown} without an answer`);
  t.ok(unknown <= CALLERS / programs.length, 'each caller of the killed process at most once');
  const answer = await post(`${urls[1]}/answer/${id}`);
  t.match(answer.body, { allowed: false, used: LIMIT, left: 0 });
}

await onEngines((engine, fresh) => {
  t.test(
    `${engine}: four processes, one of them killed, never use more than a limit, and none is lost`,
    (t) => race(t, fresh(t)),
  );
});
