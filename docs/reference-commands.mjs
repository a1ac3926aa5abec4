// The pages of the commands: what both programs print for --help, in tables. docs/generate.mjs calls it.
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { escapeHtml, table } from './table.mjs';

const dist = fileURLToPath(new URL('../dist', import.meta.url));

/** The commands of each program by job. Every command stands in one group. */
const GROUPS = {
  'saas-backend': {
    'Start and check': ['serve', 'init', 'doctor'],
    Users: ['user'],
    Billing: ['billing'],
    'Data and audit': ['backup', 'store', 'audit'],
    Help: ['help', 'version', 'completion'],
  },
  idp: {
    'Start and check': ['serve', 'doctor'],
    'People and operators': ['invite', 'principal', 'group', 'operator'],
    Applications: ['client', 'registration-token'],
    'APIs and delegation': ['resource', 'delegation'],
    Agents: ['agent', 'login', 'token'],
    'Other identity providers': ['trusted-issuer', 'audience'],
    'Data and audit': ['backup', 'store', 'audit'],
    Help: ['help', 'version', 'completion'],
  },
};

const SECTION = /^(Arguments|Options|Global options|Commands|Examples):$/;

/** The parts of a help page: `Usage`, the text, and the lines of each section. */
function partsOf(help) {
  const [usage, ...lines] = help.split('\n');
  const sections = { text: [] };
  let current = 'text';
  for (const line of lines) {
    const [, name] = SECTION.exec(line) ?? [];
    if (name) current = name;
    // A line that is not indented ends a section.
    else if (current !== 'text' && /^\S/.test(line)) current = 'text';
    if (!name) sections[current] = [...(sections[current] ?? []), line];
  }
  return { usage: usage.replace(/^Usage: /, ''), ...sections };
}

/** `  --name <value>   What it is` with lines that continue it. */
function rowsOf(lines) {
  const rows = [];
  for (const line of lines.filter((one) => one.trim() !== '')) {
    const [, indent, term, meaning = ''] = /^( +)(\S.*?)(?: {2,}(.*))?$/.exec(line);
    if (indent.length <= 6) rows.push([`\`${term}\``, meaning]);
    else rows.at(-1)[1] += ` ${line.trim()}`;
  }
  return rows.map(([term, meaning]) => [term, meaning.trim()]);
}

/** Paragraphs of a help page. One with indented lines is shown as it stands. */
const paragraphsOf = (lines) =>
  lines
    .join('\n')
    .trim()
    .split(/\n{2,}/)
    .filter(Boolean)
    .map((part) =>
      /^ /m.test(part) ? `\`\`\`text\n${part}\n\`\`\`` : escapeHtml(part.replaceAll('\n', ' ')),
    );

const slugOf = (title) => title.replaceAll(' ', '-');

function commandSection({ title, help, isGroup }) {
  const { usage, text, Arguments, Options, Examples } = partsOf(help);
  const parts = [`### ${title}`, ...paragraphsOf(text)];
  // The commands of a group follow it, with their examples.
  if (isGroup) return parts.join('\n\n');
  parts.push(`\`\`\`text\n${usage}\n\`\`\``);
  for (const [name, lines] of Object.entries({ Argument: Arguments, Option: Options }))
    if (lines) parts.push(table([name, 'Meaning'], rowsOf(lines)).trimEnd());
  if (Examples) {
    const examples = Examples.map((line) => line.replace(/^ {2}/, ''));
    parts.push(`\`\`\`sh\n${examples.join('\n').trim()}\n\`\`\``);
  }
  return parts.join('\n\n');
}

/** What a program prints for `--help`. It is loaded once more for each command. */
async function helpOf(program, words) {
  const printed = [];
  // Each load listens for a broken pipe.
  for (const stream of [process.stdout, process.stderr]) stream.setMaxListeners(0);
  const { argv, stdout } = process;
  const { write, isTTY } = stdout;
  process.argv = [argv[0], program, ...words, '--help'];
  stdout.isTTY = false;
  stdout.write = (text) => printed.push(text) > 0;
  try {
    await import(`${pathToFileURL(join(dist, `bin/${program}.js`))}?${words.join('-')}`);
  } finally {
    process.argv = argv;
    Object.assign(stdout, { write, isTTY });
  }
  return printed
    .join('')
    .replace(/\u001b\[\d+m/g, '')
    .trim();
}

/** The names of the subcommands in a help page. */
const subcommandsIn = (help) =>
  [...(/\nCommands:\n((?: {2}.*\n?)+)/.exec(help)?.[1] ?? '').matchAll(/^ {2}([\w-]+)/gm)].map(
    ([, name]) => name,
  );

/** A command and those below it. */
async function commandsOf(program, words) {
  const help = await helpOf(program, words);
  const names = subcommandsIn(help);
  const below = [];
  for (const name of names) below.push(...(await commandsOf(program, [...words, name])));
  const own = help
    .replace(/\n+Exits with 1 on failure, 2 on invalid arguments\.$/, '')
    // Those of all commands are the same: the first page says it once.
    .replace(/\nGlobal options:\n(?: .*(?:\n|$))+/, '');
  return [{ title: [program, ...words].join(' '), help: own, isGroup: names.length > 0 }, ...below];
}

/** What a command does: the first sentence of its help page, or what the list of commands says. */
const aboutOf = ({ title, help }, listed) =>
  /^.*?[.:](?= |$)/.exec(partsOf(help).text.join(' ').trim())?.[0].replace(/:$/, '.') ??
  listed.find(([term]) => term.startsWith(`\`${title.split(' ').at(-1)}`))?.[1] ??
  '';

export async function commandPage(note, program) {
  const help = await helpOf(program, []);
  const groups = GROUPS[program];
  const listed = Object.values(groups).flat();
  const missing = subcommandsIn(help).filter((name) => !listed.includes(name));
  if (missing.length > 0) throw new Error(`docs/reference-commands.mjs has no group for ${missing}`);
  const { text, Commands, Examples } = partsOf(help);
  const known = rowsOf(Commands);
  const [summary] = paragraphsOf(text);
  const lists = [];
  const sections = [];
  for (const [group, names] of Object.entries(groups)) {
    const commands = [];
    for (const name of names) commands.push(...(await commandsOf(program, [name])));
    const rows = commands
      .filter(({ isGroup }) => !isGroup)
      .map((command) => [`[\`${command.title}\`](#${slugOf(command.title)})`, aboutOf(command, known)]);
    lists.push(`**${group}**\n\n${table(['Command', 'What it does'], rows)}`);
    sections.push(`## ${group}`, ...commands.map(commandSection));
  }
  const examples = Examples.map((line) => line.replace(/^ {2}/, ''))
    .join('\n')
    .trim();
  return `${note}
# Commands of ${program}

${summary}

\`\`\`sh
${examples}
\`\`\`

[Options](../configuration.md) are environment variables, or stand in a \`.env\` file in the current folder. [Commands](../cli.md) describes
exit codes and \`--json\`.

${lists.join('\n')}
${sections.join('\n\n')}
`;
}

export const cliPage = (note) => `${note}
# Commands

- [Commands of saas-backend](cli/saas-backend.md): start, users, billing, data
- [Commands of idp](cli/idp.md): start, people, applications, APIs, agents, data

Both pages show what the programs print for \`--help\`.

| Exit code | Meaning |
| --- | --- |
| 0 | The command succeeded, or the server was stopped. |
| 1 | The command failed. |
| 2 | An argument is invalid. |

Each command takes these options, before or after the name of the command:

| Option | Meaning |
| --- | --- |
| \`--json\` | Print JSON. An error is one line of JSON, the last on stderr, with the same exit code. |
| \`--help\` | Print the help of the command. |
| \`--version\` | Print the version. |

\`\`\`json
{ "error": { "code": "STORE_UNAVAILABLE", "message": "…" } }
\`\`\`

The code is that of an [error](errors.md), or \`INVALID_ARGUMENTS\`, \`INVALID_CONFIGURATION\`, \`STORE_UNAVAILABLE\` or \`FAILED\`.
`;
