import Fastify, { type FastifyInstance, type FastifyRequest } from 'fastify';
import t from 'tap';
import { logSparingly } from '../../src/server-request-log.js';

interface Pino {
  bindings(): Record<string, unknown>;
  setBindings(bindings: Record<string, unknown>): void;
  isLevelEnabled(level: string): boolean;
  levelVal: number;
  silent(line: string): void;
}

/** What requests do with their log, and what they learn of it. */
const USES: Record<string, (log: FastifyRequest['log'] & Pino) => unknown> = {
  nothing: () => undefined,
  lines: (log) => {
    for (const level of ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const) log[level](level);
    log.silent('unheard');
    log.warn({ detail: 1, err: new Error('broken') }, 'with %s', 'words');
  },
  children: (log) => log.child({ part: 'a' }, { level: 'debug' }).debug('of a child'),
  level: (log) => {
    const before = [log.level, log.levelVal, log.isLevelEnabled('debug')];
    log.level = 'debug';
    log.debug('heard');
    return [before, log.level, log.isLevelEnabled('debug')];
  },
  replaced: (log) => {
    const heard: unknown[] = [];
    Object.assign(log, { info: (line: unknown) => heard.push(line), note: 'mine' });
    log.info('to the host');
    log.warn('to the log');
    return [heard.length, (log as unknown as { note: string }).note];
  },
  bindings: (log) => {
    log.setBindings({ tenant: 'b' });
    log.error('of a tenant');
    return log.bindings();
  },
};

for (const level of ['trace', 'info', 'warn', 'fatal']) {
  t.test(`at ${level}, a log that is made late is the log`, async (t) => {
    const observe = async (prepare: (app: FastifyInstance) => void) => {
      const lines: Record<string, unknown>[] = [];
      const answers: unknown[] = [];
      const write = (line: string) => void lines.push(JSON.parse(line));
      const app = Fastify({ logger: { level, stream: { write } }, genReqId: () => 'req_1' });
      prepare(app);
      for (const [name, use] of Object.entries(USES)) {
        app.get(`/${name}`, (request) => ({ told: use(request.log as FastifyRequest['log'] & Pino) }));
        app.get(`/own/${name}`, { logLevel: 'error' }, (request) => ({
          told: use(request.log as FastifyRequest['log'] & Pino),
        }));
      }
      app.get('/broken', () => {
        throw new Error('on purpose');
      });
      for (const name of [...Object.keys(USES), 'broken', 'nowhere']) {
        answers.push((await app.inject(`/${name}`)).json(), (await app.inject(`/own/${name}`)).json());
      }
      await app.close();
      for (const line of lines) for (const name of ['time', 'responseTime']) if (name in line) line[name] = 0;
      return { lines: JSON.parse(JSON.stringify(lines).replace(/"stack":"[^"]*"/g, '"stack":""')), answers };
    };

    const [usual, sparing] = [await observe(() => undefined), await observe((app) => logSparingly(app.log))];
    t.ok(usual.lines.length > 0);
    t.strictSame(sparing, usual);
  });
}

t.test('a request that says nothing has no log made', async (t) => {
  const app = Fastify({ logger: { level: 'warn', stream: { write: () => undefined } } });
  const { child } = app.log;
  let made = 0;
  app.log.child = function (...given) {
    made++;
    return child.apply(this, given);
  };
  logSparingly(app.log);
  app.get('/', (request) => {
    request.log.info('not at this level');
    return 'quiet';
  });
  app.get('/loud', (request) => {
    request.log.warn('once');
    request.log.warn('twice');
    return 'loud';
  });
  await app.inject('/');
  t.equal(made, 0);
  await app.inject('/loud');
  t.equal(made, 1);
  await app.close();
});
