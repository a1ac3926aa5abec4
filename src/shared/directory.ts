/** An application whose users are the people of the identity provider in the same process. */
export interface HostedApplication {
  /** The address of the API, which is the identifier of the resource. */
  resource: string;
  /** As people read it. */
  name: string;
  /** What the API offers, with a description for the page on which people let agents act. */
  scopes: readonly { name: string; description: string }[];
  /** Where the sign-in returns to. */
  callback: string;
}

/** The identity provider in the same process whose people are the users: `fastify.idp`. */
export interface PersonDirectory {
  /** The issuer, exactly as in every id_token. */
  issuer(): string;
  /**
   * Registers the API, with the scopes that it lacks, and a client for the sign-in, which is public and asks for no consent. Repeated calls, also of
   * several processes at once, have the effect of one. Returns the client ID.
   */
  registerApplication(application: HostedApplication): Promise<string>;
  /**
   * An active person; null if there is none with this `sub`. `emailVerified`: whether the address is proven to belong to the person.
   * @param delegation what an agent acts with: null, too, if it is not a valid one of the person
   */
  findPerson(
    sub: string,
    delegation?: string,
  ): Promise<{ email?: string; emailVerified: boolean; name?: string } | null>;
  /** Ends what agents may do for a person at an API. */
  endDelegations(sub: string, resource: string): Promise<void>;
}
