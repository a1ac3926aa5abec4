/** How long a process keeps everybody waiting, in processor time: what other programs of the machine do does not count. */
export interface Stalls {
  /** The most between two turns of the loop since the last call, in milliseconds. */
  longest(): number;
  end(): void;
}

/** Milliseconds between two looks. */
const INTERVAL = 5;

export function watchStalls(): Stalls {
  let last = worked();
  let longest = 0;
  const look = (): void => {
    const now = worked();
    longest = Math.max(longest, now - last);
    last = now;
  };
  const timer = setInterval(look, INTERVAL).unref();
  return {
    longest() {
      look();
      const answer = longest;
      longest = 0;
      return answer;
    },
    end: () => clearInterval(timer),
  };
}

/** In milliseconds, of all threads. */
function worked(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
