/** Event-loop delay in CPU time: the load of other programs on the machine does not count. */
export interface Stalls {
  /** The longest since the last call, in milliseconds. */
  longest(): number;
  end(): void;
}

/** Milliseconds between two measurements. */
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

/** Processor time of all threads, in milliseconds. */
function worked(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
