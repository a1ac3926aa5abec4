import type { FuzzTarget } from './engine.js';
import { idpTarget } from './idp.js';

/** The products, each on a store of its own in a folder. */
export const FUZZ_TARGETS: Record<string, (folder: string) => Promise<FuzzTarget>> = { idp: idpTarget };
