/** Supabase Auth as a peer, on the same PostgreSQL server: in its schema, with rotation of refresh tokens and without its limits. */
import { secret } from './lab.js';
import { repeating, request } from './load.js';
import { following, type Peer, peerUsers, post } from './peer-rows.js';
import { bearer, JSON_BODY } from './saas-rows.js';
import { onPostgresql } from './servers.js';

const REFRESH = '/token?grant_type=refresh_token';

interface Session {
  access_token: string;
  refresh_token: string;
}

export const supabaseAuth: Peer = {
  name: 'Supabase Auth',
  variable: 'SUPABASE_AUTH',
  async open({ lab, database }, program, count) {
    const uri = new URL(database?.newDatabase() ?? '');
    uri.search = '';
    await onPostgresql(uri.href, ['DROP SCHEMA IF EXISTS auth CASCADE', 'CREATE SCHEMA auth']);
    uri.search = 'search_path=auth&sslmode=disable';
    const { url } = await lab.peer(
      program,
      () => [],
      (port) => ({
        DATABASE_URL: uri.href,
        DB_NAMESPACE: 'auth',
        GOTRUE_DB_DRIVER: 'postgres',
        // As many connections as saas-backend, all of which stay open.
        GOTRUE_DB_MAX_POOL_SIZE: '10',
        GOTRUE_DB_MAX_IDLE_POOL_SIZE: '10',
        GOTRUE_API_HOST: '127.0.0.1',
        PORT: String(port),
        API_EXTERNAL_URL: `http://127.0.0.1:${port}`,
        GOTRUE_SITE_URL: 'https://app.example',
        GOTRUE_JWT_SECRET: secret(),
        GOTRUE_LOG_LEVEL: 'error',
        GOTRUE_MAILER_AUTOCONFIRM: 'true',
        GOTRUE_SECURITY_REFRESH_TOKEN_ROTATION_ENABLED: 'true',
      }),
    );
    const server = { url, readers: [], refreshers: [] } as Awaited<ReturnType<Peer['open']>>;
    for (const user of peerUsers(count)) {
      const { access_token, refresh_token } = await post<Session>(`${url}/signup`, user);
      server.readers.push(repeating(request('GET', '/user', bearer(access_token)), 200));
      server.refreshers.push(
        following(
          refresh_token,
          (token) => request('POST', REFRESH, JSON_BODY, JSON.stringify({ refresh_token: token })),
          (body) => JSON.parse(body).refresh_token,
        ),
      );
    }
    return server;
  },
};
