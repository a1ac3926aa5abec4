import { runMutants } from '../mutants.mjs';

// Breaks the limits of connections, one defect at a time, in a copy of the build, and runs the tests that must notice. Exits
// with 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

const CONNECTIONS = 'connections';
const NEVER_CUT_OFF = [CONNECTIONS, 'a request in progress is never cut off for a new connection'];
const NEVER_IDLE = [CONNECTIONS, 'an upgraded connection is never idle'];
const LONGEST_IDLE = [
  CONNECTIONS,
  'saas-backend: beyond the limit of an address, its longest idle connection is closed',
];
const THOUSANDS = [
  CONNECTIONS,
  'a client that pipelines thousands of requests and reads nothing is disconnected',
];

const mutants = [
  {
    name: 'a connection with a request in progress counts as idle',
    file: 'connections.js',
    text: `        this.#markActive(connection);
        return true;
    }
    /** Counts the end`,
    replacement: `        return true;
    }
    /** Counts the end`,
    tests: [NEVER_CUT_OFF],
  },
  {
    name: 'an upgraded connection counts as idle',
    file: 'connections.js',
    text: `if (connection)
                connections.begin(connection);`,
    replacement: '',
    tests: [NEVER_IDLE],
  },
  {
    name: 'a connection is not idle again after its response',
    file: 'connections.js',
    text: '--connection.active === 0 && this.#open.has(connection.socket)',
    replacement: '--connection.active < 0',
    tests: [LONGEST_IDLE],
  },
  {
    name: 'requests of a closed connection count as waiting',
    file: 'connections.js',
    text: 'this.#waiting -= connection.waiting.length;',
    replacement: '',
    tests: [THOUSANDS],
  },
];

runMutants('server', mutants);
