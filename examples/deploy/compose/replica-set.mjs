/**
 * Initiates the MongoDB replica set of compose.yaml and creates the users that the URIs of the programs name. It can be
 * repeated: it continues after an interruption, and sets changed passwords.
 *
 * The members, the name of the set, users and databases are those of the URIs. LOCAL_URI is the first member, through a
 * loopback connection: MongoDB lets only such a connection create the first user (localhost exception).
 */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { MongoClient } from 'mongodb';

const ADMIN = 'admin';
const TIMEOUT_MS = 120_000;

/** Codes of MongoDB. */
const AUTHENTICATION_FAILED = 18;
const USER_EXISTS = 51003;

const read = (file) => readFileSync(file, 'utf8').trim();

const { LOCAL_URI, URI_FILES, ADMIN_PASSWORD_FILE } = process.env;
const adminPassword = read(ADMIN_PASSWORD_FILE);
const programs = URI_FILES.split(',').map((file) => new MongoClient(read(file)).options);
const [{ replicaSet, hosts }] = programs;

/** The driver repeats attempts to connect for this time. */
const WAIT = { serverSelectionTimeoutMS: 30_000, heartbeatFrequencyMS: 500 };

async function initiate(local) {
  // The first user is created at the first member, which therefore has to become the primary.
  const members = hosts.map((host, index) => ({
    _id: index,
    host: String(host),
    priority: index === 0 ? 2 : 1,
  }));
  // A new primary does not wait for the last writes of one that hangs, which no majority has.
  const settings = { catchUpTimeoutMillis: 1000 };
  await local.db('admin').command({ replSetInitiate: { _id: replicaSet, members, settings } });
  console.log(`initiated ${replicaSet} with ${members.length} members`);
}

/** A connection to the primary; null if the administrator does not exist. */
async function connect() {
  const client = new MongoClient(`mongodb://${hosts.join(',')}/?replicaSet=${replicaSet}`, {
    auth: { username: ADMIN, password: adminPassword },
    ...WAIT,
  });
  try {
    return await client.connect();
  } catch (error) {
    await client.close();
    if (error.code === AUTHENTICATION_FAILED) return null;
    throw error;
  }
}

async function createAdministrator(local) {
  const { isWritablePrimary } = await local.db('admin').command({ hello: 1 });
  if (!isWritablePrimary) throw new Error('The first member is not the primary.');
  await local.db('admin').command({ createUser: ADMIN, pwd: adminPassword, roles: ['root'] });
  console.log(`created the user ${ADMIN}`);
}

async function createUser(db, { username, password }) {
  const user = { pwd: password, roles: ['readWrite'] };
  try {
    await db.command({ createUser: username, ...user });
  } catch (error) {
    if (error.code !== USER_EXISTS) throw error;
    await db.command({ updateUser: username, ...user });
  }
}

/** Continues where an attempt before it has failed. */
async function prepare() {
  const local = new MongoClient(LOCAL_URI, { directConnection: true, ...WAIT });
  let administrator;
  try {
    const { setName } = await local.db('admin').command({ hello: 1 });
    if (setName === undefined) await initiate(local);
    administrator = await connect();
    if (administrator === null) {
      await createAdministrator(local);
      administrator = await connect();
    }
    for (const { credentials, dbName } of programs) await createUser(administrator.db(dbName), credentials);
  } finally {
    await Promise.all([administrator?.close(), local.close()]);
  }
}

const deadline = Date.now() + TIMEOUT_MS;
for (;;) {
  try {
    await prepare();
    break;
  } catch (error) {
    // The members are still starting, or elect a primary.
    if (Date.now() > deadline) throw error;
    await sleep(500);
  }
}
for (const { credentials, dbName } of programs)
  console.log(`the user ${credentials.username} may read and write the database ${dbName}`);
