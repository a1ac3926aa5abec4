import { words } from './words.js';

/** Redirect URIs that a client may register, and those that it may not. */

const URI = 'https://app.example.test/cb';

/** Allowed in production (RFC 9700 §4.1, RFC 8252 §7). */
export const REGISTRABLE = words(`
  ${URI} ${URI}?tenant=1&x=%20 ${URI}?codes=1&statement=2&my_state=3&encode=4
  https://app.example.test https://app.example.test:8443/ https://xn--bcher-kva.test/ https://my_app/cb https://[2001:db8::1]/cb
  http://127.0.0.1/cb http://127.0.0.1:8080/cb http://[::1]/cb http://localhost:3000/cb http://127.0.0.2/
  com.example.app:/cb com.example.app://cb com.example-app.x2:cb`);

/** Parameters of the response. */
const RESERVED = words(
  'code state iss error error_description session_state id_token access_token Code c%6fde code[] state%5B0%5D +state',
);

/** Refused in production. */
export const UNREGISTRABLE = [
  ...RESERVED.flatMap((name) => [
    `${URI}?${name}=x`,
    `${URI}?tenant=1&${name}`,
    `com.example.app:/cb?${name}=x`,
  ]),
  ...words(`
    cb /cb //app.example.test/cb app.example.test/cb * https://*.example.test/cb https://
    javascript:alert(1) data:text/html,x file:///etc/passwd vbscript:x about:blank blob:https://x.test/1 JAVASCRIPT:alert(1)
    ftp://example.test/ ws://example.test/ myapp:/cb mailto:a@example.test view-source:https://x.test
    intent://x#Intent;end chrome://settings
    http://app.example.test/cb http://127.0.0.1.evil.test/cb http://localhost.evil.test/ http://0.0.0.0/
    ${URI}# ${URI}#f ${URI}é https://app.example.test\\@evil.test/
    https://user@app.example.test/cb https://user:pw@app.example.test/ https://@app.example.test/ https://:@x.test/
    com.example.app://user@host/cb .com:/cb com..app:/cb
    https:app.example.test/cb https:/app.example.test/cb https:///app.example.test/cb http:127.0.0.1/cb
    https://app.example.test;script-src'x'/cb https://app,example.test/cb https://app%2eexample.test/cb
    http://127.0.0.1:80@evil.test/ http://[::1].evil.test/ http://127.0.0.1\u3002evil.test/ https://[::1/cb
    https://app.example.test:99999/ https://app.example.test:x/`),
  ...[`${URI} `, ` ${URI}`, `${URI}\n`, `${URI}\0`, 'x'.repeat(2049)],
  ...['https://app.example.test/\tcb', 'https://app.exam\nple.test/cb', 'java\tscript:alert(1)'],
];
