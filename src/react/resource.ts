/** A value of the server that components show. */
export interface Loaded<T> {
  /** Undefined until it is loaded. */
  value: T | undefined;
  /** Why the last request has failed. */
  error: unknown;
}

/** A value that is loaded when the first component shows it. */
export type Resource<T> = ReturnType<typeof createResource<T>>;

/** @param given the value if it is known already, which causes no request */
export function createResource<T>(load: () => Promise<T>, given?: T) {
  const first: Loaded<T> = { value: given, error: undefined };
  let state = first;
  let newest: Promise<T> | undefined;
  const listeners = new Set<() => void>();
  const set = (next: Loaded<T>): void => {
    state = next;
    for (const listener of listeners) listener();
  };

  const reload = async (): Promise<void> => {
    const mine = load();
    newest = mine;
    const next = await mine.then(
      (value) => ({ value, error: undefined }),
      (error: unknown) => ({ value: state.value, error }),
    );
    // A later request has the newer value.
    if (newest === mine) set(next);
  };

  return {
    get: () => state,
    /** What the server has rendered. */
    getFirst: () => first,
    set: (value: T): void => {
      newest = undefined;
      if (value !== state.value) set({ value, error: undefined });
    },
    reload,
    /** Loads the value of another user, perhaps: an error leaves nothing of the one before. */
    async replace(): Promise<void> {
      await reload();
      if (state.error !== undefined) set({ value: undefined, error: state.error });
    },
    /** Shows nothing until the next request, whose answer is of another user, perhaps. */
    forget(): void {
      newest = undefined;
      set({ value: undefined, error: undefined });
    },
    isShown: () => listeners.size > 0,
    subscribe(listener: () => void): () => void {
      listeners.add(listener);
      if (state.value === undefined && !newest) void reload();
      return () => {
        listeners.delete(listener);
      };
    },
  };
}
