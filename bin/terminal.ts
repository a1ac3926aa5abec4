/** What a program says, and where. Answers go to stdout, everything about them to stderr. */

export function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

export function complain(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** An answer that cannot be written is a failure, and no stack trace: whoever closed a pipe has read enough. */
export function handleBrokenPipe(): void {
  process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
    process.exitCode = 1;
    if (code !== 'EPIPE') complain(`The answer cannot be written (${code}).`);
  });
  // There is nobody left to tell.
  process.stderr.on('error', () => undefined);
}

export function fail(code: number, text: string): never {
  complain(text);
  process.exit(code);
}

/** Codes of the terminal, and nothing where there is none or NO_COLOR is set, which Node looks at. */
export function style(): Record<'bold' | 'dim' | 'red' | 'yellow' | 'green' | 'plain', string> {
  const isColored = process.stdout.isTTY && process.stdout.hasColors();
  const code = (number: number) => (isColored ? `\x1b[${number}m` : '');
  return { bold: code(1), dim: code(2), red: code(31), yellow: code(33), green: code(32), plain: code(0) };
}

/** What happened and, where it is known, what to do about it. */
export function sentences({ message, remedy }: Error & { remedy?: string }): string {
  return remedy === undefined ? message : `${message}. ${remedy}`;
}
