// Calls the tools with the command line of the MCP Inspector: as ../python/mcp_client.py.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';

const { FOLDER, HOME, PATH, RESOURCE } = process.env;

async function call(tool, ...args) {
  const launcher = `${FOLDER}/@modelcontextprotocol/inspector/clients/launcher/build/index.js`;
  const target = ['--cli', RESOURCE, '--transport', 'http', '--method', 'tools/call', '--tool-name', tool];
  const child = spawn(process.execPath, [launcher, ...target, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH, HOME, BROWSER: 'true', MCP_AUTO_OPEN_ENABLED: 'true', MCP_INSPECTOR_SECRET_STORE: 'file' },
  });
  createInterface(child.stderr).on('line', (line) => {
    const [, address] = /^Please navigate to: (http\S+)$/.exec(line) ?? [];
    if (address) console.log(address);
    else console.error(line);
  });
  const output = await text(child.stdout);
  console.error(output);
  return JSON.parse(JSON.parse(output).content[0].text);
}

console.log(JSON.stringify([await call('whoami'), await call('add_note', '--tool-arg', 'text=Milk')]));
