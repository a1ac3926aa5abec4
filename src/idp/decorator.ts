import type { PersonDirectory } from '../shared/directory.js';
import type { ProvisioningModule } from './provisioning/module.js';

/** The host's `fastify.idp`, which is also the directory of `saasBackend({ agents: { directory } })`. */
export interface IdpDecorator extends PersonDirectory {
  /**
   * A link with which the first operator of the console chooses a user name and a password, once, within an hour; `null` if
   * the store contains a principal or an earlier link is valid. Nothing calls it but `idp serve`.
   */
  createFirstOperatorLink(): Promise<{ url: string; expiresAt: number } | null>;
}

declare module 'fastify' {
  interface FastifyInstance {
    idp: IdpDecorator;
  }
}

export function createDecorator(
  directory: PersonDirectory,
  { firstOperator }: ProvisioningModule,
): IdpDecorator {
  return Object.freeze({ ...directory, createFirstOperatorLink: firstOperator.offer });
}
