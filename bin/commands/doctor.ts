import type { Finding } from '../../src/server/doctor.js';
import type { Call, Command } from '../command.js';
import { say, style } from '../terminal.js';

const doctor: Command = {
  name: 'doctor',
  summary: 'explains what is wrong with the configuration, and what is unwise',
  about: `It tries the configuration, the store and the port as a start does, and leaves nothing behind. It prints no
secret. Ends with 1 when something would keep the program from starting.`,
  examples: ['doctor', 'doctor --json'],
  run: examine,
};

export const commands = [doctor];

async function examine({ program, json }: Call): Promise<void> {
  const findings = await program.examine();
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
