import { readFileSync } from 'node:fs';

/** Reads the subset of Dockerfiles that deploy/Dockerfile uses; anything else is an error. */

export interface Step {
  keyword: 'COPY' | 'RUN' | 'WORKDIR';
  /** Options like `--from=build`. */
  options: Record<string, string>;
  /** The rest of the line. */
  text: string;
}

export interface Stage {
  name: string;
  steps: Step[];
}

export interface Image {
  stages: Stage[];
  environment: Record<string, string>;
  folder: string;
  /** `<uid>:<gid>`. */
  user: string;
  healthcheck: string[];
  entrypoint: string[];
  command: string[];
}

/** The instructions, without comments and with continued lines joined. */
function instructionsOf(file: string): [keyword: string, text: string][] {
  const lines = readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => !line.trimStart().startsWith('#'));
  return lines
    .join('\n')
    .replaceAll(/\\\n\s*/g, '')
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => [line.split(' ', 1)[0] as string, line.slice(line.indexOf(' ') + 1).trim()]);
}

function withoutOptions(text: string): Pick<Step, 'options' | 'text'> {
  const words = text.split(/\s+/);
  const options = words.filter((word) => word.startsWith('--')).map((word) => word.slice(2).split('='));
  return {
    options: Object.fromEntries(options),
    text: text.replaceAll(/(^|\s)--[\w-]+=\S+/g, '').trim(),
  };
}

export function readDockerfile(file: string): Image {
  const image: Image = {
    stages: [],
    environment: {},
    folder: '/',
    user: '0:0',
    healthcheck: [],
    entrypoint: [],
    command: [],
  };
  for (const [keyword, text] of instructionsOf(file)) {
    const stage = image.stages.at(-1);
    if (keyword === 'FROM') image.stages.push({ name: / AS (\S+)$/.exec(text)?.[1] ?? '', steps: [] });
    else if (keyword === 'ENV')
      for (const [, name = '', value = ''] of text.matchAll(/(\w+)=(\S+)/g)) image.environment[name] = value;
    else if (keyword === 'USER') image.user = text;
    else if (keyword === 'HEALTHCHECK') image.healthcheck = JSON.parse(text.slice(text.indexOf('CMD ') + 4));
    else if (keyword === 'ENTRYPOINT') image.entrypoint = JSON.parse(text);
    else if (keyword === 'CMD') image.command = JSON.parse(text);
    else if (keyword === 'COPY' || keyword === 'RUN' || keyword === 'WORKDIR') {
      stage?.steps.push({
        keyword,
        ...withoutOptions(keyword === 'COPY' ? text : ''),
        ...(keyword !== 'COPY' && { text }),
      });
      if (keyword === 'WORKDIR') image.folder = text;
    } else if (keyword !== 'ARG' && keyword !== 'EXPOSE') throw new Error(`unknown instruction ${keyword}`);
  }
  return image;
}

/** The paths that the build context contains: the exceptions of an ignore file that begins with `**`. */
export function contextPaths(ignoreFile: string): string[] {
  const [first, ...others] = readFileSync(ignoreFile, 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  if (first !== '**' || others.some((line) => !line.startsWith('!')))
    throw new Error('The ignore file has to be a list of what is included.');
  return others.map((line) => line.slice(1));
}
