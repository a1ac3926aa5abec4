import { InvalidArgumentError } from 'commander';
import { Email, matchesSchema } from '../../src/core/http/schemas.js';
import type { Finding } from '../../src/core/server/doctor.js';
import type { CommandLine, CommonOptions } from '../command.js';
import type { Program } from '../program.js';
import { say, style } from '../terminal.js';

const DESCRIPTION = `Check the configuration, the store and the port as a start does, the certificate of the public address and the services \
that are used, and explain each problem and warning. The command changes nothing, sends a mail only with --send-mail-to, and prints no secret. It exits with 1 when a problem would keep the server from starting.`;

export function define(command: CommandLine, program: Program): void {
  command
    .description(DESCRIPTION)
    .option('--send-mail-to <address>', 'Send a test mail to this address', parseAddress)
    .examples(
      `${program.name} doctor`,
      `${program.name} doctor --send-mail-to you@example.com`,
      `${program.name} doctor --json`,
    )
    .action((options: DoctorOptions) => examine(program, options));
}

interface DoctorOptions extends CommonOptions {
  sendMailTo?: string;
}

function parseAddress(text: string): string {
  if (matchesSchema(text, Email)) return text;
  throw new InvalidArgumentError('Use an e-mail address, like you@example.com.');
}

async function examine(program: Program, { json, sendMailTo }: DoctorOptions): Promise<void> {
  const findings = await program.examine(sendMailTo);
  const count = (level: Finding['level']) => findings.filter((finding) => finding.level === level).length;
  const [problems, warnings] = [count('problem'), count('warning')];
  if (problems > 0) process.exitCode = 1;
  if (json) say(JSON.stringify({ healthy: problems === 0, findings }));
  else {
    const summary = `${counted(problems, 'problem')}, ${counted(warnings, 'warning')}.`;
    say([...findings.map(paragraph), '', summary].join('\n'));
  }
}

function counted(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

function paragraph({ level, about, message, remedy }: Finding): string {
  const { bold, red, yellow, green, plain } = style();
  const color = { problem: red, warning: yellow, ok: green }[level];
  const line = `${color}${level.padEnd(7)}${plain}  ${bold}${about}${plain} ${message}`;
  return remedy === undefined ? line : `${line}\n         → ${remedy}`;
}
