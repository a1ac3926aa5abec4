import { randomBytes, scryptSync } from 'node:crypto';
import t from 'tap';
import { createPasswords } from '../../src/passwords/hasher.js';
import { CHEAP, PASSWORD } from '../kit/app.js';
import { countedRandom } from '../kit/random.js';

const passwords = createPasswords(countedRandom(), CHEAP);

/** Written by the systems themselves, at their lowest cost. */
const FOREIGN = {
  'bcrypt, Python': '$2b$04$gibEioNbSfg5jYeo2zREPue/mlelbkNF7eHwzKqjZtN1n.7vYh/k6',
  'bcrypt, as Supabase has it': '$2a$04$XTuyIS99hkwY2e8/7K7RlefGboJb28bSlZlN.9r6HA6faaFfv0H06',
  'passlib scrypt':
    '$scrypt$ln=10,r=8,p=1$611LqXVuLYVQKiXk3HvPWQ$xz8i2euLt9W1cSzVoTItNZB0T9F1GSjaxMu4zAD8sYs',
  'passlib pbkdf2-sha256':
    '$pbkdf2-sha256$1000$KAVg7J0TIqRU6n1PaW2N8Q$drDOQVcRz5FZOe1vG3w0Og75jzE1Cdv5.jcVq1rpDV4',
  'PHC pbkdf2-sha256':
    '$pbkdf2-sha256$i=1000,l=32$KAVg7J0TIqRU6n1PaW2N8Q$drDOQVcRz5FZOe1vG3w0Og75jzE1Cdv5+jcVq1rpDV4',
  'passlib pbkdf2-sha512':
    '$pbkdf2-sha512$1000$K8XYe0.JkVJqTQkhZIyR0g$ZA1CG/9cr0u62gTsGZUXHhK5OBAAPh8D4hx2qmSaNdFtlv4WvHM8jT5nGp732YBK7HzyPfXEygOsrc2grs6qnQ',
  'passlib pbkdf2': '$pbkdf2$1000$4VwLYexdy5kTYgxhbO1dSw$joYf32tvDCoc0D4LRVU6IO9crlE',
  'Django pbkdf2_sha256': 'pbkdf2_sha256$1000$Zq3kXw9pLm2Tn7Rv$uIBGJyPvAI24y79H1Pz4NodXtYZeM0TOwOaVf9tdcs8=',
  'Django pbkdf2_sha1': 'pbkdf2_sha1$1000$Zq3kXw9pLm2Tn7Rv$UWtT7UBEKOLOJB/qvKHg8uAtcN4=',
  'Django scrypt':
    'scrypt$1024$Zq3kXw9pLm2Tn7Rv$8$1$R+pSBIeatgfvtIz3izxfTOrhYvcoyw+C6grZISKVEH6X8RwcWBiWrSfvn7ca4TzBsZ2BQNHeNwOaNM1zmYdMGw==',
};

t.test('a hash of another system verifies its password and asks for a rehash', async (t) => {
  for (const [name, stored] of Object.entries(FOREIGN)) {
    t.ok(passwords.accepts(stored), name);
    t.same(await passwords.verify(stored, PASSWORD), { ok: true, outdated: true }, name);
    t.same(await passwords.verify(stored, `${PASSWORD}!`), { ok: false, outdated: false }, name);
    t.same(await passwords.verify(stored, ''), { ok: false, outdated: false }, name);
    // Not the last letters, some of whose bits stand for nothing.
    const [tail = ''] = /.{5}$/.exec(stored) ?? [];
    const flipped = stored.slice(0, -5) + (tail.startsWith('Q') ? 'Z' : 'Q') + tail.slice(1);
    t.equal((await passwords.verify(flipped, PASSWORD)).ok, false, `${name}, one letter changed`);
  }
});

t.test('a Better Auth hash of an NFKC password is verified', async (t) => {
  const stored =
    'e49cca85615942848bb3776c70c59355:43a6e0549e55d81d8b58057e8f59f8f19b84f77271b51e952986a09dc05cf25a4d66a1281de38329bf0015f9c809bcf939ce6db01fcbca8982de97c65a0c7b9a';
  t.ok(passwords.accepts(stored));
  for (const spelling of [
    'pässwörd ﬁne horse',
    'pässwörd fine horse',
    'pässwörd ﬁne horse'.normalize('NFD'),
  ]) {
    t.same(await passwords.verify(stored, spelling), { ok: true, outdated: true });
  }
  t.equal((await passwords.verify(stored, 'passwörd fine horse')).ok, false);
});

t.test('hashes of excessive cost are refused before any work', async (t) => {
  const key = 'A'.repeat(43);
  const greedy = [
    FOREIGN['bcrypt, Python'].replace('$04$', '$31$'),
    FOREIGN['bcrypt, Python'].replace('$04$', '$15$'),
    FOREIGN['bcrypt, Python'].replace('$04$', '$03$'),
    `$scrypt$ln=30,r=8,p=1$c2FsdA$${key}`,
    `$scrypt$ln=22,r=8,p=1$c2FsdA$${key}`,
    `$scrypt$ln=1,r=9999,p=999$c2FsdA$${key}`,
    `$scrypt$ln=10,r=0,p=1$c2FsdA$${key}`,
    `$scrypt$ln=0,r=8,p=1$c2FsdA$${key}`,
    `scrypt$1000$salt$8$1$${key}=`,
    `scrypt$999999999$salt$8$1$${key}=`,
    `$pbkdf2-sha512$999999999$c2FsdA$${key}`,
    `$pbkdf2-sha256$0$c2FsdA$${key}`,
    `$pbkdf2-sha256$1000$c2FsdA$${'A'.repeat(200)}`,
    '$pbkdf2-sha256$1000$c2FsdA$AAAA',
    `$pbkdf2-md5$1000$c2FsdA$${key}`,
    `pbkdf2_sha512$1000$salt$${key}=`,
    'md5$salt$9e107d9d372bb6826bd81d3542a419d6',
    '$1$salt$qJH7.N4xYta3aEG/dfqo/0',
  ];
  for (const stored of greedy) {
    t.notOk(passwords.accepts(stored), stored);
    t.same(await passwords.verify(stored, PASSWORD), { ok: false, outdated: false }, stored);
  }
});

t.test('OpenSSL accepts the highest accepted cost', async (t) => {
  const salt = randomBytes(16);
  const cost = { N: 2 ** 17, r: 8, p: 2 };
  const key = scryptSync(PASSWORD, salt, 32, { ...cost, maxmem: 2 ** 30 });
  const bare = (bytes: Buffer) => bytes.toString('base64').replaceAll('=', '');
  const stored = `$scrypt$ln=17,r=8,p=2$${bare(salt)}$${bare(key)}`;
  t.same(await passwords.verify(stored, PASSWORD), { ok: true, outdated: true });
});
