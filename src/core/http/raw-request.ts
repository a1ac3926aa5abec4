import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { type AppError, httpErrors, type Rendered } from '../kernel/errors.js';
import { closeConnection } from './close-connection.js';

/** Error code of Node → status; all others are 400. */
const STATUSES: Record<string, number> = {
  ERR_HTTP_REQUEST_TIMEOUT: 408,
  HPE_HEADER_OVERFLOW: 431,
};

/** Responds to a request that Node could not parse, in the common error format, and closes the connection. */
export function rejectMalformedRequest(
  { code = '' }: { code?: string },
  socket: Socket,
  requestId: string,
  render: (error: AppError, requestId: string) => Rendered,
): void {
  if (code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const status = STATUSES[code] ?? 400;
  const { type, body } = render(httpErrors.VALIDATION_ERROR(), requestId);
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    `content-type: ${type}`,
    `content-length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${requestId}`,
    'cache-control: no-store',
    'x-content-type-options: nosniff',
    'connection: close',
  ];
  closeConnection(socket, `${head.join('\r\n')}\r\n\r\n${body}`);
}
