/** Every problem of a configuration in one message. Never holds a value. */
export class ConfigurationError extends Error {
  readonly problems: readonly string[];

  constructor(program: string, problems: readonly string[]) {
    super(
      [`${program} cannot start with this configuration:`, ...problems.map((p) => `  - ${p}`)].join('\n'),
    );
    this.name = 'ConfigurationError';
    this.problems = problems;
  }
}

/**
 * Resolves several parts of one configuration and reports the problems of all of them together.
 *
 * @throws ConfigurationError naming every problem
 */
export function gatherProblems<Parts extends readonly unknown[]>(
  program: string,
  ...parts: { [Index in keyof Parts]: () => Parts[Index] }
): Parts {
  const problems: string[] = [];
  const resolved = parts.map((resolve) => {
    try {
      return resolve();
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error;
      problems.push(...error.problems);
      return undefined;
    }
  });
  // NODE_ENV is of several parts.
  if (problems.length > 0) throw new ConfigurationError(program, [...new Set(problems)]);
  return resolved as unknown as Parts;
}

/** Collects what is wrong with a configuration. */
export class Report {
  readonly problems: string[] = [];
  readonly warnings: string[] = [];
  readonly production: boolean;

  constructor(production: boolean) {
    this.production = production;
  }

  /** The program cannot start so. */
  refuse(problem: string): void {
    this.problems.push(problem);
  }

  /** Fine for development, refused in production. */
  unsafe(problem: string): void {
    (this.production ? this.problems : this.warnings).push(problem);
  }
}
