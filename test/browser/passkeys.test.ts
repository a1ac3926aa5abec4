import fastify from 'fastify';
import type { Browser, CDPSession, Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { saasBackend } from '../../src/index.js';
import { clientScript } from '../client/kit.js';
import { PASSWORD } from '../kit/app.js';
import { onChromium } from '../kit/chromium.js';
import { saasPluginOptions } from '../kit/host.js';
import { claimsOf, codeIn, type IdpAppOptions } from '../kit/idp.js';
import { authorizeUrl, fillSignIn, reachableIdp, refusalsOf, serveElsewhere } from './kit.js';

/** Passkeys in a real browser, with the virtual authenticator of Chromium. */

const AUTHENTICATOR = {
  protocol: 'ctap2',
  transport: 'internal',
  hasResidentKey: true,
  hasUserVerification: true,
  isUserVerified: true,
  automaticPresenceSimulation: true,
} as const;

interface Device {
  page: Page;
  devtools: CDPSession;
  authenticator: string;
  refusals: string[];
}

/** A new browser context with an authenticator. */
async function openDevice(t: Test, browser: Browser, more: object = {}): Promise<Device> {
  const context = await browser.newContext();
  t.teardown(() => context.close());
  const page = await context.newPage();
  const devtools = await context.newCDPSession(page);
  await devtools.send('WebAuthn.enable');
  const { authenticatorId: authenticator } = await devtools.send('WebAuthn.addVirtualAuthenticator', {
    options: { ...AUTHENTICATOR, ...more },
  });
  return { page, devtools, authenticator, refusals: refusalsOf(context) };
}

async function setUp(t: Test, options: IdpAppOptions = {}) {
  const { idp, origin } = await reachableIdp(t, { passkeys: true, ...options });
  const app = await serveElsewhere(t, (_request, response) => response.end('arrived'));
  const client = await idp.createClient({ redirect_uris: `${app.url}/cb` });
  const human = await idp.makeHuman();
  const start = authorizeUrl(origin, client, { acr_values: 'mfa' });
  /** Signs in with the password and opens the page of the passkeys. */
  const enter = async (page: Page) => {
    await page.goto(`${origin}/account/passkeys`);
    await fillSignIn(page, human.handle);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await page.waitForURL(`${origin}/account/passkeys`);
  };
  const add = async (page: Page, name?: string) => {
    // Forms of one millisecond have one challenge.
    idp.clock.advance(1);
    await page.goto(`${origin}/account/passkeys`);
    if (name !== undefined) await page.getByLabel('Name of the passkey').fill(name);
    await page.getByRole('button', { name: 'Add a passkey' }).click();
    await page.waitForURL(/done=passkey-added/);
  };
  const signOut = (page: Page) => page.context().clearCookies();
  /** The claims of the sign-in that ends at the application. */
  const arrive = async (page: Page, act: () => Promise<unknown>) => {
    const request = page.waitForRequest((sent) => sent.url().startsWith(`${app.url}/cb?`));
    const landing = page.waitForURL((url) => url.href.startsWith(app.url));
    const [sent] = await Promise.all([request, landing, act()]);
    return claimsOf((await idp.redeem(client, codeIn(sent.url()))).body.id_token);
  };
  return { idp, origin, human, start, enter, add, signOut, arrive };
}

const button = (page: Page) => page.getByRole('button', { name: 'Sign in with a passkey' });

/** A page of an application with the client; its buttons do what their names say. */
const APPLICATION = `<!doctype html><title>Shop</title>
<input id="email" autocomplete="username webauthn"><output></output>
<button id="sign-up">Sign up</button><button id="sign-in">Sign in</button><button id="add">Add</button>
<script src="/client.js"></script>
<script>
  const { signIn, passkeys } = SaasClient.createClient({ baseUrl: '/api' });
  const email = document.getElementById('email');
  const show = (work) => work.then(
    ({ user, name }) => {
      document.querySelector('output').value = user ? 'signed in as ' + user.email : 'added ' + name;
    },
    (error) => { document.querySelector('output').value = 'failed: ' + (error.code || error.name); },
  );
  document.getElementById('sign-up').onclick = () => show(passkeys.register({ email: email.value }));
  document.getElementById('sign-in').onclick = () => show(signIn.passkey());
  document.getElementById('add').onclick = () => show(passkeys.add({ name: 'Laptop' }));
  if (location.hash === '#offer') show(signIn.passkey({ mediation: 'conditional' }));
</script>`;

/** Builds credentials as extensions do: on the prototypes of the browser, whose methods throw for other objects. */
const AS_PASSWORD_MANAGER = `{
  const rebuilt = (prototype, values) =>
    Object.create(prototype, Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }])));
  const FIELDS = ['clientDataJSON', 'attestationObject', 'authenticatorData', 'signature', 'userHandle'];
  for (const name of ['create', 'get']) {
    const real = navigator.credentials[name].bind(navigator.credentials);
    navigator.credentials[name] = async (options) => {
      // Only the button is of interest.
      if (options.mediation === 'conditional') return new Promise(() => {});
      const { id, rawId, type, response } = await real(options);
      const given = FIELDS.filter((field) => field in response).map((field) => [field, response[field]]);
      const own = rebuilt(Object.getPrototypeOf(response), Object.fromEntries(given));
      return rebuilt(PublicKeyCredential.prototype, { id, rawId, type, response: own });
    };
  }
}`;

/** The application and its API on one origin. */
async function openApplication(t: Test) {
  const app = fastify({ forceCloseConnections: true });
  t.teardown(() => app.close());
  app.get('/', (_request, reply) => reply.type('text/html').send(APPLICATION));
  app.get('/client.js', async (_request, reply) => reply.type('text/javascript').send(await clientScript()));
  const { publicUrl: _, ...options } = saasPluginOptions(t);
  await app.register(saasBackend, { ...options, passkeys: true });
  const { port } = new URL(await app.listen({ host: '127.0.0.1', port: 0 }));
  return { app, origin: `http://localhost:${port}` };
}

await onChromium((browser) => {
  for (const kind of ['the browser', 'a password manager'])
    t.test(`an application uses passkeys of ${kind} by the client`, async (t) => {
      const { app, origin } = await openApplication(t);
      const { page, devtools, authenticator } = await openDevice(t, browser);
      if (kind !== 'the browser') await page.addInitScript(AS_PASSWORD_MANAGER);
      await page.goto(origin);
      await page.locator('#email').fill('ada@example.test');
      const output = page.locator('output');
      const press = async (name: string, expected: RegExp) => {
        await page.getByRole('button', { name, exact: true }).click();
        await output.filter({ hasText: expected }).waitFor();
      };
      await press('Sign up', /^signed in as ada@example\.test$/);
      const { credentials } = await devtools.send('WebAuthn.getCredentials', {
        authenticatorId: authenticator,
      });
      t.match(credentials, [{ isResidentCredential: true, rpId: 'localhost' }]);
      await press('Add', /^failed: EMAIL_NOT_VERIFIED$/);
      const { id = '' } = (await app.saas.users.find({ email: 'ada@example.test' })) ?? {};
      await app.saas.users.update({ id }, { emailVerified: true });
      await devtools.send('WebAuthn.clearCredentials', { authenticatorId: authenticator });
      await press('Add', /^added Laptop$/);

      await page.goto(origin);
      await press('Sign in', /^signed in as ada@example\.test$/);
      // The virtual authenticator chooses the passkey in the field by itself.
      if (kind === 'the browser') {
        await page.goto(`${origin}/?again#offer`);
        await output.filter({ hasText: /^signed in as ada/ }).waitFor();
      }
      await app.saas.users.suspend({ id });
      await press('Sign in', /^failed: ACCOUNT_SUSPENDED$/);
      await devtools.send('WebAuthn.setUserVerified', {
        authenticatorId: authenticator,
        isUserVerified: false,
      });
      await press('Sign in', /^failed: CANCELLED$/);
      t.pass('as the page says');
    });

  t.test('a person adds a passkey, and the browser offers it by the button and in the field', async (t) => {
    const { human, start, enter, add, signOut, arrive } = await setUp(t);
    const { page, devtools, authenticator, refusals } = await openDevice(t, browser);
    await enter(page);
    t.match(await page.getByLabel('Name of the passkey').inputValue(), 'Linux', 'a suggestion');
    await add(page, 'Laptop');
    t.match(await page.locator('.entries').innerText(), /Laptop[\s\S]*Not used yet/);
    const stored = await devtools.send('WebAuthn.getCredentials', { authenticatorId: authenticator });
    t.match(stored.credentials, [{ isResidentCredential: true, rpId: 'localhost' }]);

    await signOut(page);
    // Only the button: nobody chooses the passkey that the field offers.
    await setPresence(devtools, authenticator, false);
    await page.goto(start);
    await button(page).waitFor();
    await setPresence(devtools, authenticator, true);
    t.match(await arrive(page, () => button(page).click()), {
      sub: human.sub,
      amr: ['pop', 'user', 'mfa'],
      acr: 'mfa',
    });

    await signOut(page);
    // The virtual authenticator chooses the passkey in the field by itself.
    t.match(await arrive(page, () => page.goto(start)), { sub: human.sub, acr: 'mfa' });
    t.same(refusals, []);
  });

  t.test(
    'credentials that a password manager builds itself, whose toJSON throws, are accepted',
    async (t) => {
      const { human, start, enter, add, signOut, arrive } = await setUp(t);
      const { page, refusals } = await openDevice(t, browser);
      await page.addInitScript(AS_PASSWORD_MANAGER);
      await enter(page);
      await add(page, 'Vault');
      await signOut(page);
      await page.goto(start);
      await button(page).waitFor();
      t.match(await arrive(page, () => button(page).click()), { sub: human.sub, acr: 'mfa' });
      t.same(refusals, []);
    },
  );

  t.test('without user verification, the page says that no passkey was used', async (t) => {
    const { start, enter, add, signOut, arrive } = await setUp(t);
    const { page, devtools, authenticator } = await openDevice(t, browser);
    await enter(page);
    await add(page);
    await signOut(page);
    await devtools.send('WebAuthn.setUserVerified', {
      authenticatorId: authenticator,
      isUserVerified: false,
    });
    await page.goto(start);
    await button(page).click();
    const alert = page.getByRole('alert');
    await alert.waitFor();
    t.match(await alert.innerText(), 'No passkey was used');
    await devtools.send('WebAuthn.setUserVerified', {
      authenticatorId: authenticator,
      isUserVerified: true,
    });
    t.match(await arrive(page, () => button(page).click()), { acr: 'mfa' });
  });

  t.test('a person signs up with a passkey, under the user name that was typed', async (t) => {
    const { origin, signOut } = await setUp(t);
    const { page, devtools, authenticator, refusals } = await openDevice(t, browser);
    await page.goto(`${origin}/account/sign-up`);
    const create = page.getByRole('button', { name: 'Create account with a passkey' });
    await create.click();
    t.equal(new URL(page.url()).pathname, '/account/sign-up', 'a user name is required');
    await page.getByLabel('E-mail or user name').fill('ada@example.test');
    await create.click();
    await page.waitForURL(`${origin}/account`);
    const { credentials } = await devtools.send('WebAuthn.getCredentials', {
      authenticatorId: authenticator,
    });
    t.match(credentials, [{ userName: 'ada@example.test', userDisplayName: 'ada@example.test' }]);
    await signOut(page);
    await page.goto(`${origin}/account/delete`);
    await page.getByLabel('Type ada@example.test to confirm').fill('ada@example.test');
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.waitForURL(`${origin}/account/deleted`);
    t.same(refusals, []);
  });

  t.test('without scripts, or in a browser without passkeys, the password form works', async (t) => {
    const { start, enter, human, arrive } = await setUp(t);
    const plain = await browser.newContext({ javaScriptEnabled: false });
    const old = await browser.newContext();
    await old.addInitScript('delete window.PublicKeyCredential');
    for (const context of [plain, old]) {
      t.teardown(() => context.close());
      const page = await context.newPage();
      await page.goto(start);
      t.notOk(await button(page).isVisible());
      await fillSignIn(page, human.handle, PASSWORD);
      t.match(await arrive(page, () => page.getByLabel('Password').press('Enter')), { acr: '0' });
      await context.clearCookies();
      await enter(page);
      t.notOk(await page.getByRole('button', { name: 'Add a passkey' }).isVisible());
      t.match(await page.locator('main').innerText(), 'require a current browser');
    }
  });
});

const setPresence = (devtools: CDPSession, authenticatorId: string, enabled: boolean) =>
  devtools.send('WebAuthn.setAutomaticPresenceSimulation', { authenticatorId, enabled });
