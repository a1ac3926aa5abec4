/** The fields of `T`, of which those that can be undefined are optional instead. */
type Defined<T> = { [K in keyof T as undefined extends T[K] ? never : K]: T[K] } & {
  [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined>;
};

/**
 * Without the fields that are undefined: the store rejects them, and optional fields of types do not accept them
 * (`exactOptionalPropertyTypes`).
 */
export const defined = <T extends object>(fields: T): Defined<T> =>
  pickFields<Defined<T>>(fields as Record<string, unknown>, (value) => value !== undefined);

/** The value of a table, for a name that a request has chosen: never what each object inherits. */
export const ownValue = <T>(table: Readonly<Record<string, T>>, name = ''): T | undefined =>
  Object.hasOwn(table, name) ? table[name] : undefined;

/** Without the fields that are undefined or null. */
export const present = <T extends object>(fields: { [K in keyof T]: T[K] | null | undefined }): T =>
  pickFields<T>(fields, (value) => value != null);

/** `Object.fromEntries` takes three times as long, several times for each payment event. */
function pickFields<T>(fields: Record<string, unknown>, passes: (value: unknown) => boolean): T {
  const picked: Record<string, unknown> = {};
  for (const name of Object.keys(fields)) if (passes(fields[name])) picked[name] = fields[name];
  return picked as T;
}
