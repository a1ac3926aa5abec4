// Dex between the identity provider and an application that supports only RS256. See `--help`.
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import * as kit from './broker-kit.mjs';
import { describe, expectRefusal, serveForeignKey, signEverybodyIn } from './broker-sign-in.mjs';

const HELP = `Starts the identity provider and Dex with examples/dex-broker.yaml, signs a person and an agent in to an application
of Dex, shows that a foreign key is rejected, and stops everything it started.

Usage
  node examples/dex-broker.mjs [--dex <program>] [--stay]

Options
  --dex <program>  a current Dex (dex in PATH)
  --stay           keeps everything running until Ctrl-C and skips the foreign key
  --help           shows this help`;

const { values: flags } = readArguments();
if (flags.help) console.log(HELP);
else await kit.run(example);

function readArguments() {
  try {
    return parseArgs({
      options: {
        dex: { type: 'string', default: 'dex' },
        stay: { type: 'boolean' },
        help: { type: 'boolean' },
      },
    });
  } catch (error) {
    console.error(`${error.message}\n\n${HELP}`);
    process.exit(2);
  }
}

async function example(house) {
  await promisify(execFile)(flags.dex, ['version']).catch(({ message }) => {
    throw new kit.Problem(`Dex was not found: ${message}. Set its path with --dex: https://dexidp.io`);
  });
  const port = await kit.freePort();
  const issuer = `http://localhost:${port}/dex`;
  const provider = await kit.step('Identity provider started', () =>
    kit.startProvider(house, `${issuer}/callback`),
  );
  const config = readFileSync(new URL('dex-broker.yaml', import.meta.url), 'utf8')
    .replaceAll('5556', port)
    .replaceAll('http://localhost:8080', provider.issuer);
  const application = {
    issuer,
    clientId: 'app',
    clientSecret: kit.newSecret(),
    // The choice of a connector is skipped.
    hint: { connector_id: 'idp' },
    scope: 'openid email profile groups',
    kindIn: ({ groups }) => groups?.find((group) => group.startsWith('kind:'))?.slice('kind:'.length),
  };
  const serve = (text) =>
    kit.step(`Dex started at ${issuer}`, async () => {
      const file = join(house.folder, 'dex.yaml');
      writeFileSync(file, text);
      const program = house.start(flags.dex, ['serve', file], {
        IDP_CLIENT_ID: provider.client.client_id,
        IDP_CLIENT_SECRET: provider.client.client_secret,
        APP_SECRET: application.clientSecret,
      });
      await kit.untilReady(program, `${issuer}/.well-known/openid-configuration`);
      return program;
    });

  const dex = await serve(config);
  await signEverybodyIn(application, provider);
  if (flags.stay) {
    await describe(application, provider);
    return dex.closed;
  }
  await kit.stop(dex);

  const foreign = await serveForeignKey(provider);
  try {
    const overrides = `providerDiscoveryOverrides: { jwksURL: "${foreign.url}" }`;
    const misled = await serve(config.replace('clientID:', `${overrides}\n      clientID:`));
    await expectRefusal(application, provider, misled, /failed to verify id token signature/);
  } finally {
    foreign.close();
  }
}
