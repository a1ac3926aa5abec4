// Calls the tools through mcp-remote, as a desktop application that can start programs only: as ../python/mcp_client.py.
import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const { FOLDER, HOME, PATH, RESOURCE } = process.env;

const transport = new StdioClientTransport({
  command: process.execPath,
  args: [`${FOLDER}/mcp-remote/dist/proxy.js`, RESOURCE],
  // No browser: the address is a line of output here.
  env: { PATH, HOME, MCP_REMOTE_CONFIG_DIR: HOME, BROWSER: 'true' },
  stderr: 'pipe',
});
createInterface(transport.stderr).on('line', (line) => {
  if (line.startsWith('http')) console.log(line);
  else console.error(line);
});
const client = new Client({ name: 'test', version: '1.0.0' });
await client.connect(transport);
const results = [];
for (const call of [{ name: 'whoami' }, { name: 'add_note', arguments: { text: 'Milk' } }])
  results.push(JSON.parse((await client.callTool(call)).content[0].text));
console.log(JSON.stringify(results));
await client.close();
