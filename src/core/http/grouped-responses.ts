import { Readable } from 'node:stream';
import type { DoneFuncWithErrOrRes, FastifyInstance } from 'fastify';

/**
 * Requests that arrive in one turn of the event loop are processed one after another, and so are those responses that are
 * ready at once. They are sent at its end, in immediate succession: a write to a connection may wake up the process that
 * waits for it, such as a proxy, which can take longer than reading a session from SQLite, and between two writes in
 * succession it stays awake.
 */

/** Numbers of requests that arrived in this turn, at all scopes, and in the last turn with any. */
let arrived = 0;
let last = 0;

const endTurn = (): void => {
  last = arrived;
  arrived = 0;
};

const send = (done: DoneFuncWithErrOrRes): void => {
  try {
    done();
  } catch (error) {
    // As Fastify does for a hook that returns a promise.
    done(error as Error);
  }
};

/** Adds the hooks to a scope. */
export function groupResponses(scope: FastifyInstance): void {
  scope.addHook('onRequest', (_request, _reply, done) => {
    if (arrived++ === 0) setImmediate(endTurn);
    done();
  });
  scope.addHook('onSend', (_request, _reply, payload, done) => {
    // A single client does not wait, nor do responses after a commit, which are in succession anyway. A stream may fail
    // before it is sent, and only its response handles that.
    if (arrived > 0 && last > 1 && !(payload instanceof Readable)) setImmediate(send, done);
    else done();
  });
}
