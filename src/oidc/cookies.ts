import { parse, serialize } from 'cookie';
import type { FastifyReply, FastifyRequest } from 'fastify';

/** One cookie of ours: it belongs to this host alone, and no script reads it. */
export interface Cookie {
  of(request: Pick<FastifyRequest, 'headers'>): string | undefined;
  set(reply: FastifyReply, value: string): void;
  clear(reply: FastifyReply): void;
}

export interface Cookies {
  /** Binds a form to the browser that it was shown to. */
  form: Cookie;
  /** Of whoever has signed in. */
  session: Cookie;
}

export function createCookies(issuer: () => string): Cookies {
  const isSecure = () => issuer().startsWith('https:');
  const cookie = (plain: string): Cookie => {
    // The prefix keeps other hosts of the domain from planting the cookie; browsers demand https for it.
    const name = () => (isSecure() ? `__Host-${plain}` : plain);
    const rules = () => ({ path: '/', httpOnly: true, sameSite: 'lax', secure: isSecure() }) as const;
    return {
      of: ({ headers }) => parse(headers.cookie ?? '')[name()],
      set: (reply, value) => void reply.header('set-cookie', serialize(name(), value, rules())),
      clear: (reply) =>
        void reply.header(
          'set-cookie',
          serialize(name(), '', { ...rules(), maxAge: 0, expires: new Date(0) }),
        ),
    };
  };
  return { form: cookie('idp'), session: cookie('idp-session') };
}

/** The path we are reached at, which a proxy may have lengthened. */
export function mountPath(issuer: string): string {
  return new URL(issuer).pathname.replace(/\/$/, '');
}
