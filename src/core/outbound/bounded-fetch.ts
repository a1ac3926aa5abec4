/** Requests to addresses that the operator has chosen, whose answers are not trusted nevertheless. */

/** Longer than the metadata, keys and tokens of any provider. */
const MAX_BYTES = 1024 * 1024;

/** Statuses whose responses have no body. */
const WITHOUT_BODY: readonly number[] = [204, 205, 304];

/** `fetch` that reads no more of a body than {@link bounded}. */
export const boundedFetch = async (url: string, init?: object): Promise<Response> =>
  bounded(await fetch(url, init));

/**
 * Reads at most one megabyte of a response, counted after its decompression: a few kilobytes can be decompressed to gigabytes.
 *
 * @throws Error if it is longer
 */
export async function bounded(response: Response): Promise<Response> {
  const { status, statusText, headers } = response;
  const body = WITHOUT_BODY.includes(status) ? null : await readBody(response);
  return new Response(body, { status, statusText, headers });
}

async function readBody({ body }: Response): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body ?? []) {
    size += chunk.length;
    // Leaving the loop closes the connection.
    if (size > MAX_BYTES) throw new Error(`its response is longer than ${MAX_BYTES} bytes`);
    chunks.push(chunk);
  }
  return new Uint8Array(Buffer.concat(chunks));
}
