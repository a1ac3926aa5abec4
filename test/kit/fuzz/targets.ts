import type { FuzzTarget } from './engine.js';
import { idpTarget } from './idp.js';
import { saasTarget } from './saas.js';

/** The products, each on its own store in a folder. */
export const FUZZ_TARGETS: Record<string, (folder: string) => Promise<FuzzTarget>> = {
  idp: idpTarget,
  'saas-backend': saasTarget,
};
