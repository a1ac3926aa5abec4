/** What is wrong with a configuration. Never holds a secret. */
export interface Problem {
  /** A sentence that begins with the variable, without its full stop where a remedy follows. */
  message: string;
  /** What to do, where the description of the variable does not say it. */
  remedy?: string;
}

/** A problem and its remedy as one text. */
export function formatProblem({ message, remedy }: Problem): string {
  return remedy === undefined ? message : `${message} ${remedy}`;
}

/** Every problem of a configuration in one message. Never holds a secret. */
export class ConfigurationError extends Error {
  readonly problems: readonly string[];
  /** The same, with the remedies apart. */
  readonly details: readonly Problem[];

  constructor(program: string, details: readonly Problem[]) {
    const problems = details.map(formatProblem);
    super(
      [`${program} cannot start with this configuration:`, ...problems.map((text) => `  - ${text}`)].join(
        '\n',
      ),
    );
    this.name = 'ConfigurationError';
    this.problems = problems;
    this.details = details;
  }
}

/**
 * Resolves several parts of one configuration and reports the problems of all of them together.
 *
 * @throws ConfigurationError naming every problem
 */
export function collectProblems<Parts extends readonly unknown[]>(
  program: string,
  ...parts: { [Index in keyof Parts]: () => Parts[Index] }
): Parts {
  // By their text: NODE_ENV is of several parts.
  const problems = new Map<string, Problem>();
  const resolved = parts.map((resolve) => {
    try {
      return resolve();
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error;
      for (const problem of error.details) problems.set(formatProblem(problem), problem);
      return undefined;
    }
  });
  if (problems.size > 0) throw new ConfigurationError(program, [...problems.values()]);
  return resolved as unknown as Parts;
}

/** Collects what is wrong with a configuration. */
export class Report {
  readonly problems: Problem[] = [];
  readonly warnings: Problem[] = [];
  readonly production: boolean;

  constructor(production: boolean) {
    this.production = production;
  }

  /** The program cannot start so. */
  refuse(message: string, remedy?: string): void {
    this.problems.push({ message, ...(remedy !== undefined && { remedy }) });
  }

  /** Fine for development, refused in production. */
  unsafe(message: string, remedy?: string): void {
    (this.production ? this.problems : this.warnings).push({
      message,
      ...(remedy !== undefined && { remedy }),
    });
  }
}

/** A warning about a valid configuration: whether it applies, the variable, the message and the remedy. Never holds a secret. */
export type Advice = [applies: boolean, about: string, message: string, remedy: string];

/** The advice that applies. */
export function applicableAdvice(
  advice: readonly Advice[],
): { about: string; message: string; remedy: string }[] {
  return advice.flatMap(([applies, about, message, remedy]) => (applies ? [{ about, message, remedy }] : []));
}
