import t from 'tap';
import { contract } from './contract.js';
import { onMongod } from './mongod.js';

await onMongod((server) => {
  contract(t, 'mongodb', server.fresh);
});
