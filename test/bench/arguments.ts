/** Parses the command line of the scripts in this folder. */
import { parseArgs } from 'node:util';

type Options = Record<string, { type: 'string' | 'boolean'; default?: string | boolean }>;

type Value<O> = O extends { type: 'string' } ? string : boolean;

type Values<T extends Options> = {
  [Name in keyof T]: T[Name] extends { default: unknown } ? Value<T[Name]> : Value<T[Name]> | undefined;
};

/**
 * Returns the options, a function that reports a usage error, and one that reads a positive integer. `--help` ends the process.
 */
export function readArguments<const T extends Options>(
  name: string,
  help: string,
  options: T,
): {
  values: Values<T>;
  usageError: (message: string) => never;
  countOf: (text: string) => number;
} {
  const usageError = (message: string): never => {
    process.stderr.write(`${name}: ${message}\n\n${help}\n`);
    process.exit(2);
  };
  const countOf = (text: string): number => {
    const count = Number(text);
    return Number.isSafeInteger(count) && count > 0 ? count : usageError(`'${text}' is no count.`);
  };
  try {
    const { values } = parseArgs({ options: { ...(options as Options), help: { type: 'boolean' } } });
    if (values['help']) {
      process.stdout.write(`${help}\n`);
      process.exit();
    }
    return { values: values as Values<T>, usageError, countOf };
  } catch (error) {
    return usageError((error as Error).message);
  }
}
