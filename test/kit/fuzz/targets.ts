import type { FuzzTarget } from './engine.js';
import { idpTarget } from './idp.js';
import { saasTarget } from './saas.js';

/** The products, each on a store of its own in a folder. */
export const FUZZ_TARGETS: Record<string, (folder: string) => Promise<FuzzTarget>> = {
  idp: idpTarget,
  'saas-backend': saasTarget,
};
