/** What a process that does not end is doing, and how to end it. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Longest wait for the report of a process: one that waits in native code writes none. */
const REPORT_MS = 3000;

/** A folder for reports, and the environment with which Node.js writes them there on SIGUSR2. */
export function reportFolder() {
  const folder = mkdtempSync(join(tmpdir(), 'saas-backend-reports-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const options = ['--report-on-signal', `--report-directory=${folder}`];
  return { folder, env: { NODE_OPTIONS: [process.env.NODE_OPTIONS, ...options].filter(Boolean).join(' ') } };
}

/** A process and its descendants, with their commands. Linux only: elsewhere there are none. */
function treeOf(root) {
  if (process.platform !== 'linux') return [];
  const all = readdirSync('/proc').flatMap((name) => (/^\d+$/.test(name) ? [readProcess(name)] : []));
  const tree = new Set([root]);
  // A child can have a smaller number than its parent.
  for (let size = 0; size < tree.size; ) {
    size = tree.size;
    for (const found of all) if (found && tree.has(found.parent)) tree.add(found.pid);
  }
  return all.filter((found) => found && tree.has(found.pid));
}

/** Null if it has ended meanwhile. */
function readProcess(pid) {
  try {
    const [, fields] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(/\) (?=\S )/);
    const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
    return { pid: Number(pid), parent: Number(fields.split(' ')[1]), command };
  } catch (error) {
    if (error.code === 'ENOENT' || error.code === 'ESRCH') return null;
    throw error;
  }
}

/** The stack of every thread, by the tool eu-stack of elfutils. */
async function nativeStack(pid) {
  try {
    const { stdout } = await run('eu-stack', ['--pid', String(pid), '-n', '30'], { maxBuffer: 2 ** 26 });
    return stdout;
  } catch (error) {
    return error.stdout || `no native stacks: ${error.message.split('\n')[0]}\n`;
  }
}

/** The JavaScript stack, if the process runs with `reportFolder()`. SIGUSR2 ends other programs. */
async function javascriptStack(pid, folder) {
  try {
    process.kill(pid, 'SIGUSR2');
  } catch (error) {
    if (error.code === 'ESRCH') return 'it has ended meanwhile\n';
    throw error;
  }
  const until = Date.now() + REPORT_MS;
  while (Date.now() < until) {
    const name = readdirSync(folder).find((name) => name.split('.').includes(String(pid)));
    const text = name && readFileSync(join(folder, name), 'utf8');
    if (text?.trimEnd().endsWith('}')) {
      const { javascriptStack: js, libuv } = JSON.parse(text);
      const handles = libuv.filter(({ is_active: isActive }) => isActive).map(({ type }) => type);
      return `${[js.message, ...(js.stack ?? [])].join('\n  ')}\nactive handles: ${handles.join(', ')}\n`;
    }
    await delay(50);
  }
  return `no JavaScript stack within ${REPORT_MS / 1000} s: it waits in native code\n`;
}

/**
 * The stacks of a process and its descendants.
 *
 * @param {number} root
 * @param {string} [folder] of `reportFolder()`
 */
export async function stacksOf(root, folder) {
  const parts = [];
  for (const { pid, command } of treeOf(root)) {
    parts.push(`--- process ${pid}: ${command}\n`, await nativeStack(pid));
    if (folder && /^\S*node /.test(command)) parts.push(await javascriptStack(pid, folder));
  }
  return parts.join('');
}

/** Ends a process and its descendants. */
export function endTree(root) {
  for (const { pid } of treeOf(root)) end(pid);
}

/** Ends every process of a group. */
export function endGroup(pgid) {
  end(-pgid);
}

function end(pid) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    // It has ended already.
    if (error.code !== 'ESRCH') throw error;
  }
}
