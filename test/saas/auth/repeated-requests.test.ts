import t, { type Test } from 'tap';
import { HOUR } from '../../../src/core/kernel/clock.js';
import { errorOf, PASSWORD } from '../../kit/app.js';
import { mailedApp, RESET } from './kit.js';

/**
 * A client that got no answer repeats its request: what a repetition must not help with. That it succeeds, in every order and with every
 * loss: `links-outage.test.ts`.
 */

const NEW = 'a different sentence entirely';

/** A user with a link, which was used to set the password `NEW`. */
async function afterReset(t: Test) {
  const app = await mailedApp(t);
  const { id, email } = await app.signUp();
  const reset = async () => {
    await app.post('/auth/forgot-password', { email });
    const token = await app.tokenIn(RESET);
    t.equal((await app.post('/auth/reset-password', { token, password: NEW })).status, 200);
    return token;
  };
  const repeat = async (token: string, password = NEW, from = '203.0.113.1') =>
    errorOf(await app.post('/auth/reset-password', { token, password }, { from }));
  return { app, id, email, reset, repeat };
}

t.test('guesses at the password that a link has set are limited', async (t) => {
  const { reset, repeat } = await afterReset(t);
  const token = await reset();
  for (let count = 0; count < 10; count++)
    t.equal(await repeat(token, `guess number ${count}`), 'INVALID_TOKEN');
  t.equal(await repeat(token, NEW, '203.0.113.9'), 'RATE_LIMITED');
});

t.test('a reset is not repeated after its time, a suspension or a new password', async (t) => {
  const { app, id, email, reset, repeat } = await afterReset(t);
  const late = await reset();
  app.clock.advance(HOUR);
  t.equal(await repeat(late), 'INVALID_TOKEN');

  const suspended = await reset();
  await app.server.fastify.saas.users.suspend({ id });
  await app.server.fastify.saas.users.unsuspend({ id });
  t.equal(await repeat(suspended), 'INVALID_TOKEN');

  const replaced = await reset();
  const token = (await app.post('/auth/login', { email, password: NEW })).body.data.accessToken;
  const change = { currentPassword: NEW, newPassword: PASSWORD };
  t.equal((await app.post('/user/password', change, { token })).status, 200);
  t.equal(await repeat(replaced), 'INVALID_TOKEN');
  t.equal((await app.post('/auth/login', { email, password: PASSWORD })).status, 200);
});

t.test(
  'a change of the password is repeated by the same session only, and guesses count as any other',
  async (t) => {
    const app = await mailedApp(t);
    const { email, accessToken: token } = await app.signUp();
    const change = { currentPassword: PASSWORD, newPassword: NEW };
    t.equal((await app.post('/user/password', change, { token })).status, 200);
    const second = (await app.post('/auth/login', { email, password: NEW })).body.data.accessToken;
    t.equal(errorOf(await app.post('/user/password', change, { token: second })), 'INVALID_CREDENTIALS');
    t.equal((await app.post('/user/password', change, { token })).status, 200);
    for (let count = 1; count < 10; count++) {
      const guess = { currentPassword: PASSWORD, newPassword: `guess number ${count}` };
      t.equal(errorOf(await app.post('/user/password', guess, { token })), 'INVALID_CREDENTIALS');
    }
    t.equal(errorOf(await app.post('/user/password', change, { token })), 'RATE_LIMITED');
  },
);
