import type { Command } from 'commander';

/** Scripts that complete commands and options in a shell, from the same declarations as the help. */

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

/** What can follow a command: its subcommands and its options. The commands are written with a space before each word. */
type Completions = [command: string, words: string][];

const completionsOf = (command: Command, path = ''): Completions => {
  const flags = command.options.flatMap(({ long }) => long ?? []);
  const choices = command.registeredArguments.flatMap(({ argChoices = [] }) => argChoices);
  const words = [...command.commands.map((below) => below.name()), ...choices, ...flags, '--help'];
  return [
    [path, words.join(' ')],
    ...command.commands.flatMap((below) => completionsOf(below, `${path} ${below.name()}`)),
  ];
};

/** @param root with all its commands loaded */
export function completionScript(shell: Shell, root: Command): string {
  const completions = completionsOf(root);
  const commands = completions.flatMap(([path]) => (path === '' ? [] : [`'${path}'`]));
  return SCRIPTS[shell](root.name(), `_${root.name().replaceAll('-', '_')}`, commands, completions);
}

type Script = (name: string, id: string, commands: string[], completions: Completions) => string;

/** The function in the language of bash and zsh: `at` becomes the command before the cursor, `list` what can follow it. */
const posix = (
  id: string,
  [words, first, end, complete]: readonly [string, number, string, string],
  commands: string[],
  completions: Completions,
) => `${id}() {
  local at='' list='' i
  for ((i = ${first}; i < ${end}; i++)); do
    case "$at \${${words}[i]}" in
      ${commands.join('|')}) at="$at \${${words}[i]}" ;;
    esac
  done
  case "$at" in
${completions.map(([path, list]) => `    '${path}') list='${list}' ;;`).join('\n')}
  esac
  ${complete}
}`;

const BASH = [
  'COMP_WORDS',
  1,
  'COMP_CWORD',
  `COMPREPLY=($(compgen -W "$list" -- "\${COMP_WORDS[COMP_CWORD]}"))`,
] as const;
const ZSH = ['words', 2, 'CURRENT', `compadd -- \${=list}; _files`] as const;

const SCRIPTS: Record<Shell, Script> = {
  bash: (name, id, ...lists) => `${posix(id, BASH, ...lists)}\ncomplete -o default -F ${id} ${name}`,
  zsh: (name, id, ...lists) => `#compdef ${name}\n${posix(id, ZSH, ...lists)}\ncompdef ${id} ${name}`,
  fish: (name, id, commands, completions) => `function ${id}
  set -l at ''
  for word in (commandline -opc)[2..-1]
    contains -- "$at $word" ${commands.join(' ')}; and set at "$at $word"
  end
  switch "$at"
${completions.map(([path, list]) => `    case '${path}'\n      string split -- ' ' '${list}'`).join('\n')}
  end
end
complete -c ${name} -a '(${id})'`,
};
