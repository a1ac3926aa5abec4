/**
 * What the tabs of a browser that share a session do one after the other, and tell each other. Elsewhere, a client has its
 * session alone: programs on a server have the sessions of many users in one process.
 */

export interface Tabs {
  /** Runs alone in all tabs, or in this client where there are no Web Locks. */
  exclusive<T>(run: () => Promise<T>): Promise<T>;
  /** To all other tabs. */
  tell(message: object): void;
  /** Waits until the messages have arrived that other tabs have sent before. */
  settle(): Promise<void>;
}

interface Locks {
  request<T>(name: string, run: () => Promise<T>): Promise<T>;
}

interface Channel {
  postMessage(message: unknown): void;
  close(): void;
  onmessage: ((event: { data: unknown }) => void) | null;
  /** In a simulated browser on Node.js, whose process would not end. */
  unref?(): void;
}

/** The part of a browser that is used, if there is one. */
interface Browser {
  document?: unknown;
  navigator?: { locks?: Locks };
  BroadcastChannel?: new (name: string) => Channel;
}

/** How long to wait for the messages of other tabs where a channel does not deliver its own. */
const SETTLE_TIMEOUT_MS = 200;

/** @param isShared whether other tabs have the same session */
export function openTabs(name: string, isShared: boolean, onMessage: (message: object) => void): Tabs {
  // The types of a browser are missing in the ones of Node.js.
  const {
    document,
    navigator,
    BroadcastChannel: Channel,
  }: Browser = isShared ? (globalThis as unknown as Browser) : {};
  const locks = document ? navigator?.locks : undefined;
  const channel = document && Channel ? new Channel(name) : undefined;
  let settled: (() => void) | undefined;
  let queue: Promise<unknown> = Promise.resolve();
  channel?.unref?.();
  if (channel) {
    channel.onmessage = ({ data }) => (typeof data === 'object' && data ? onMessage(data) : settled?.());
  }

  return {
    exclusive(run) {
      if (locks) return locks.request(name, run);
      const result = queue.then(run);
      queue = result.catch(() => {});
      return result;
    },
    tell: (message) => channel?.postMessage(message),
    settle: () =>
      new Promise((resolve) => {
        if (!channel || !Channel) return resolve();
        settled = resolve;
        setTimeout(resolve, SETTLE_TIMEOUT_MS);
        // Browsers deliver messages in the order in which they were sent, also those of the same tab.
        const probe = new Channel(name);
        probe.postMessage(0);
        probe.close();
      }),
  };
}
