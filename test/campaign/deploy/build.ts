import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { contextPaths, type Image, readDockerfile, type Stage, type Step } from './dockerfile.js';

/**
 * Builds and runs deploy/Dockerfile without a container engine: each stage is an overlay over the file system of this
 * machine, which takes the place of the base image, in a mount namespace. Requires root on Linux.
 */

const run = promisify(execFile);

export interface Built {
  image: Image;
  /** The files that the last stage has added to its base image. */
  layer: string;
  /** The command that runs another one in the image. */
  within(command: readonly string[], options?: RunOptions): [file: string, args: string[]];
}

export interface RunOptions {
  environment?: Record<string, string>;
  /** `<uid>:<gid>`. Default: that of the image. */
  user?: string;
  /** Runs the command as process 1. */
  isolated?: boolean;
}

/** $1 layer, $2 its work folder, $3 mount point, $4 `rw` or the user that owns the volume; then the command. */
const MOUNT = `
set -e
mount -t overlay overlay -o lowerdir=/,upperdir="$1",workdir="$2" "$3"
mount -t proc proc "$3/proc"
mount --rbind /dev "$3/dev"
if [ "$4" != rw ]; then
  mount -t tmpfs -o uid="\${4%:*}",gid="\${4#*:}",mode=0700 tmpfs "$3/data"
  mount -o remount,bind,ro "$3"
fi
root=$3
shift 4
exec chroot "$root" "$@"`;

const PATH = `${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`;

const FOLDERS = ['/src', '/app', '/package', '/data'];

/** Why an image cannot be built on this machine, if so: mounts may be forbidden in a container. */
export async function obstacle(folder: string): Promise<string | undefined> {
  const taken = FOLDERS.find((path) => existsSync(path));
  if (taken !== undefined) return `${taken} exists on this machine`;
  for (const name of ['layer', 'work', 'root']) mkdirSync(join(folder, 'probe', name), { recursive: true });
  const probe = '--mount --propagation=private --pid --fork --kill-child sh -c'.split(' ');
  const paths = ['layer', 'work', 'root'].map((name) => join(folder, 'probe', name));
  return run('unshare', [...probe, MOUNT, 'sh', ...paths, 'rw', 'true']).then(
    () => undefined,
    (error: Error) => error.message,
  );
}

export async function build(folder: string, root: string): Promise<Built> {
  const image = readDockerfile(join(root, 'deploy/Dockerfile'));
  const included = contextPaths(join(root, 'deploy/Dockerfile.dockerignore'));

  const layerOf = (name: string) => join(folder, name || 'image', 'layer');
  /** The command that runs in the overlay of a stage. */
  const inStage = (name: string, owner: string, command: readonly string[], isolated = true) => {
    const [work, mount] = ['work', 'root'].map((entry) => join(folder, name || 'image', entry));
    const namespaces = [
      '--mount',
      '--propagation=private',
      ...(isolated ? ['--pid', '--fork', '--kill-child'] : []),
    ];
    return [
      ...namespaces,
      'sh',
      '-c',
      MOUNT,
      'sh',
      layerOf(name),
      work,
      mount,
      owner,
      ...command,
    ] as string[];
  };

  const copy = ({ options, text }: Step, stage: Stage, cwd: string): void => {
    const words = text.split(/\s+/);
    const target = join(layerOf(stage.name), resolve(cwd, words.at(-1) as string));
    for (const source of words.slice(0, -1)) {
      const paths = options['from'] ? [source] : source === '.' ? included : [source];
      const from = options['from'] ? layerOf(options['from']) : root;
      for (const path of paths) {
        const into = options['from'] ? target : join(target, path);
        cpSync(join(from, path), into, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true });
      }
    }
  };

  for (const stage of image.stages) {
    for (const entry of ['layer', 'work', 'root'])
      mkdirSync(join(folder, stage.name || 'image', entry), { recursive: true });
    let cwd = '/';
    for (const step of stage.steps) {
      if (step.keyword === 'WORKDIR') {
        cwd = step.text;
        mkdirSync(join(layerOf(stage.name), cwd), { recursive: true });
      } else if (step.keyword === 'COPY') copy(step, stage, cwd);
      else {
        process.stdout.write(`# ${step.keyword} ${step.text.split('\n')[0]}\n`);
        const script = `cd ${cwd} && ${step.text}`;
        const command = ['env', '-i', `PATH=${PATH}`, 'HOME=/root', 'sh', '-c', script];
        await run('unshare', inStage(stage.name, 'rw', command), { maxBuffer: 2 ** 26 });
      }
    }
  }
  return {
    image,
    layer: layerOf(''),
    within(command, { environment = {}, user = image.user, isolated = false } = {}) {
      const [uid = '', gid = ''] = user.split(':');
      const variables = { PATH, ...image.environment, ...environment };
      const named = Object.entries(variables).map(([name, value]) => `${name}=${value}`);
      const identity = [
        '--reuid',
        uid,
        '--regid',
        gid,
        '--clear-groups',
        '--no-new-privs',
        '--bounding-set=-all',
      ];
      const inner = ['setpriv', ...identity, 'env', '-i', '-C', image.folder, ...named, ...command];
      return ['unshare', inStage('', user, inner, isolated)];
    },
  };
}
