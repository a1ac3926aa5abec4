/** A problem with a configuration. Never contains a secret. */
export interface Problem {
  /** A sentence that begins with the variable. */
  message: string;
  /** Present if the description of the variable is not sufficient. */
  remedy?: string;
}

/** A problem with its remedy as one text. */
export function formatProblem({ message, remedy }: Problem): string {
  return remedy === undefined ? message : `${message} ${remedy}`;
}

/** Lists every problem of a configuration in one message. Never contains a secret. */
export class ConfigurationError extends Error {
  /** Sentences, each with its remedy. */
  readonly problems: readonly string[];
  /** The problems with separate remedies. */
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
 * Resolves two parts of a configuration and reports their problems together.
 *
 * @throws ConfigurationError with every problem
 */
export function collectProblems<A, B>(program: string, first: () => A, second: () => B): [A, B] {
  // Keyed by text, because both parts report the same problem with NODE_ENV.
  const problems = new Map<string, Problem>();
  const attempt = <T>(resolve: () => T): [T] | [] => {
    try {
      return [resolve()];
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error;
      for (const problem of error.details) problems.set(formatProblem(problem), problem);
      return [];
    }
  };
  const resolved = [...attempt(first), ...attempt(second)];
  if (resolved.length < 2) throw new ConfigurationError(program, [...problems.values()]);
  return resolved as [A, B];
}

/** Collects the problems of a configuration. */
export class Report {
  readonly problems: Problem[] = [];
  readonly warnings: Problem[] = [];
  readonly production: boolean;

  constructor(production: boolean) {
    this.production = production;
  }

  /** Reports a problem that prevents the start. */
  refuse(message: string, remedy?: string): void {
    this.problems.push({ message, ...(remedy !== undefined && { remedy }) });
  }

  /** Reports what has no effect. */
  warn(message: string, remedy: string): void {
    this.warnings.push({ message, remedy });
  }

  /** Reports a warning, which is a problem in production. */
  unsafe(message: string, remedy?: string): void {
    (this.production ? this.problems : this.warnings).push({
      message,
      ...(remedy !== undefined && { remedy }),
    });
  }
}

/**
 * A warning about a valid configuration: whether it applies, the variable, the message and the remedy. Never contains a
 * secret.
 */
export type ConfigurationWarning = [applies: boolean, about: string, message: string, remedy: string];

/** The advice that applies. */
export function applicableWarnings(
  advice: readonly ConfigurationWarning[],
): { about: string; message: string; remedy: string }[] {
  return advice.flatMap(([applies, about, message, remedy]) => (applies ? [{ about, message, remedy }] : []));
}
