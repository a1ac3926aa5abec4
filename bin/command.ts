import { Command, type ParseOptionsResult } from 'commander';
import { style } from './terminal.js';

/** The id of a key, a hash in base64url, if it begins with a hyphen, as one in 64 does; no option is as long. */
const HASH = /^-[\w-]{42}$/;

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

  override parseOptions(argv: string[]): ParseOptionsResult {
    const end = argv.indexOf('--');
    const isGroup = this.commands.length > 0;
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

/** Examples for the end of a help page. */
export function examples(...lines: readonly [string, ...string[]]): string {
  const { bold, plain } = style();
  return ['', `${bold}Examples:${plain}`, ...lines.map((line) => `  ${line}`)].join('\n');
}
