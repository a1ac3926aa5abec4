/** PocketBase as a peer. */
import { repeating, request } from './load.js';
import { following, type Peer, peerUsers, post } from './peer-rows.js';

const USERS = '/api/collections/users';

export const pocketBase: Peer = {
  name: 'PocketBase',
  variable: 'POCKETBASE',
  async open({ lab }, program, count) {
    const { url } = await lab.peer(program, (port, folder) => {
      return ['serve', '--http', `127.0.0.1:${port}`, '--dir', `${folder}/pb_data`];
    });
    const server = { url, readers: [], refreshers: [] } as Awaited<ReturnType<Peer['open']>>;
    for (const { email, password } of peerUsers(count)) {
      const user = { email, password, passwordConfirm: password };
      const { id } = await post<{ id: string }>(`${url}${USERS}/records`, user);
      const credentials = { identity: email, password };
      const { token } = await post<{ token: string }>(`${url}${USERS}/auth-with-password`, credentials);
      server.readers.push(repeating(request('GET', `${USERS}/records/${id}`, { authorization: token }), 200));
      server.refreshers.push(
        following(
          token,
          (authorization) => request('POST', `${USERS}/auth-refresh`, { authorization }),
          (body) => JSON.parse(body).token,
        ),
      );
    }
    return server;
  },
};
