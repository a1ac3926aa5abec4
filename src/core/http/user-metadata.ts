/**
 * What a host stores about users. It describes its own types once, and every function of the package that returns or takes
 * metadata uses them:
 *
 * ```ts
 * declare module 'saas-backend' {
 *   interface UserMetadata {
 *     public: { theme?: 'light' | 'dark' };
 *     private: { crmId?: string };
 *     fields: UserFieldsOf<typeof userFields>;
 *   }
 * }
 * ```
 */
// biome-ignore lint/suspicious/noEmptyInterface: hosts add its members
export interface UserMetadata {}

/** Metadata that only the host writes and that users read in `GET /auth/me`, with the type of `UserMetadata['public']`. */
export type PublicMetadata = UserMetadata extends { public: infer T } ? T : Record<string, unknown>;

/** Metadata that only the host reads and writes, with the type of `UserMetadata['private']`. */
export type PrivateMetadata = UserMetadata extends { private: infer T } ? T : Record<string, unknown>;

/** A change of metadata: the keys to set, and those to remove with `null`. */
export type MetadataPatch<T> = { [K in keyof T]?: T[K] | null };

/** The fields of the option `userFields`, with the type of `UserMetadata['fields']`. */
type DeclaredFields = UserMetadata extends { fields: infer T }
  ? T
  : Record<string, string | number | boolean | undefined>;

/** The values of a user. Each may be absent: accounts exist that were created before the field, or without a form. */
export type UserFieldValues = Partial<DeclaredFields>;

/** The values of a registration, with those that are required. */
export type NewUserFields = DeclaredFields;

/** A change of values: those to set, and those to remove with `null`. */
export type UserFieldsPatch = MetadataPatch<DeclaredFields>;
