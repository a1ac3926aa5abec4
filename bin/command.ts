import { Command, type ErrorOptions, type ParseOptionsResult } from 'commander';
import { fail, printsJsonErrors, style } from './terminal.js';

/** The id of a key, a hash in base64url, if it begins with a hyphen, as one in 64 does; no option is as long. */
const HASH = /^-[\w-]{42}$/;

/** Options that may stand before the name of a command. */
const GLOBAL = /^(--?(json|help)|-h)$/;

/** The first word that is not a global option. */
export const firstWord = (argv: readonly string[]): string | undefined =>
  argv.find((word) => !GLOBAL.test(word));

/** Options of every command. */
export interface CommonOptions {
  json?: true;
}

/**
 * A command of commander that also reads `-port 8080`, which commander would take for `-p ort`, and that never prints
 * the value of an option it does not know, because it may be a secret.
 */
export class CommandLine extends Command {
  override createCommand(name?: string): CommandLine {
    return new CommandLine(name);
  }

  /** Adds examples to the end of the help page. */
  examples(...lines: readonly [string, ...string[]]): this {
    return this.addHelpText('after', examples(...lines));
  }

  override error(message: string, options?: ErrorOptions): never {
    if (!printsJsonErrors()) return super.error(message, options);
    // A group leaves the option to its commands.
    const isCommandMissing = this.commands.length > 0 && message.includes("option '--json'");
    return fail(2, isCommandMissing ? 'a command is missing' : message.replace(/^error: /, ''));
  }

  override parseOptions(given: string[]): ParseOptionsResult {
    const isGroup = this.commands.length > 0;
    const argv = isGroup ? withCommandFirst(given) : given;
    const end = argv.indexOf('--');
    // What follows the name of a subcommand is read by the subcommand.
    const count = isGroup ? 1 : end === -1 ? argv.length : end;
    const words = argv.map((word, index) => (index < count ? word.replace(/^-(?=[a-z]{2})/, '--') : word));
    if (isGroup) return super.parseOptions(words);
    this.#checkValues(words.slice(0, count));
    const hashes = argv.slice(0, count).filter((word) => HASH.test(word));
    const { operands, unknown } = super.parseOptions(
      words.filter((_, index) => !HASH.test(argv[index] ?? '') || index >= count),
    );
    return {
      operands: [...operands, ...hashes],
      unknown: unknown.map((word) => word.replace(/^(--[\w-]+)=.*/s, '$1')),
    };
  }

  /** Rejects `--json=yes`, and `--name --json` instead of taking the second option for a name. */
  #checkValues(words: readonly string[]): void {
    for (const [index, word] of words.entries()) {
      const [flag = '', value] = word.split('=', 2);
      const option = this.options.find((known) => [known.short, known.long].includes(flag));
      if (option?.isBoolean() && value !== undefined) {
        this.error(`error: option '${option.flags}' takes no value`);
      }
      if (option?.required && value === undefined && /^-\D/.test(words[index + 1] ?? '')) {
        this.error(`error: option '${option.flags}' argument missing`);
      }
    }
  }
}

/** Global options before the name of a command are moved behind it, where the command reads them. */
function withCommandFirst(argv: string[]): string[] {
  const name = firstWord(argv);
  if (name === undefined || name.startsWith('-')) return argv;
  const index = argv.indexOf(name);
  return [name, ...argv.slice(0, index), ...argv.slice(index + 1)];
}

/** Examples for the end of a help page. */
export function examples(...lines: readonly [string, ...string[]]): string {
  const { bold, plain } = style();
  return ['', `${bold}Examples:${plain}`, ...lines.map((line) => `  ${line}`)].join('\n');
}
