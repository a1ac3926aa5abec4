/** Bytes of a body. */
export const BODY_LIMIT = 16 * 1024;
