/** The storage contract on PostgreSQL, and what is specific to this engine. */
import t from 'tap';
import { contract } from './contract.js';
import { onPostgres } from './postgres.js';

await onPostgres(({ fresh }) => {
  contract(t, 'postgresql', fresh);
});
