import type { ProvisioningModule } from './provisioning/module.js';

/** The host's `fastify.idp`. */
export interface IdpDecorator {
  /** The issuer, exactly as in every id_token. */
  issuer(): string;
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

export function createDecorator(issuer: () => string, { firstOperator }: ProvisioningModule): IdpDecorator {
  return Object.freeze({ issuer, createFirstOperatorLink: firstOperator.offer });
}
