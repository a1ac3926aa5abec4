import { Type } from 'typebox';
import { option } from '../config/options.js';
import { unusableStore } from '../storage/open.js';

const storeOption = (env: string, development: string) =>
  option(Type.String(), {
    env,
    doc: 'Database URI: sqlite:<path>, sqlite::memory:, mongodb://<hosts>/<name> or mongodb+srv://<host>/<name>.',
    secret: true,
    development,
    required: 'production',
    check: unusableStore,
  });

/** The option of each product that names its store. */
export const storeOptions = {
  'saas-backend': storeOption('DATABASE_URI', 'sqlite:./data/saas-backend.db'),
  idp: storeOption('IDP_DATABASE_URI', 'sqlite:./data/idp.db'),
};
