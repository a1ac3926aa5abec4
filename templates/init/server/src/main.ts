import { existsSync } from 'node:fs';
import { start } from './app.js';

if (existsSync('.env')) process.loadEnvFile();
const { port, close } = await start({
  port: Number(process.env.PORT ?? 3000),
  host: process.env.HOST ?? 'localhost',
});
console.log(`http://localhost:${port}`);

// Current requests are answered; then the database is closed and the process ends.
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, close);
