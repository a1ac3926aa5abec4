import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * A port for a server. The system gives the ports from 32768 on to connections, also between the search for a free one and
 * the start of the server, or while it is restarted.
 */
export async function serverPort(): Promise<number> {
  const probe = createServer().unref();
  const port = randomInt(20_000, 32_768);
  try {
    await once(probe.listen(port, '127.0.0.1'), 'listening');
  } catch {
    return serverPort();
  }
  await new Promise((done) => probe.close(done));
  return port;
}

/** Different ports for several servers, none of which listens yet. */
export async function serverPorts<N extends number>(count: N): Promise<number[] & { length: N }> {
  const ports = new Set<number>();
  while (ports.size < count) ports.add(await serverPort());
  return [...ports] as number[] & { length: N };
}
