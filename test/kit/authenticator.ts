import { createHash, createSign, generateKeyPairSync, type KeyObject, randomBytes } from 'node:crypto';

/**
 * An authenticator in software, which can also do what real ones do not: answer for another origin, skip the verification of
 * the user, copy a passkey.
 */

/** What a form contains for the browser, as JSON. */
interface Options {
  challenge: string;
  rp?: { id: string };
  rpId?: string;
  user?: { id: string };
}

/** Deviations from the honest answer. */
export interface Deviation {
  origin?: string;
  rpId?: string;
  challenge?: string;
  type?: string;
  crossOrigin?: boolean;
  userVerified?: boolean;
  backupEligible?: boolean;
  backedUp?: boolean;
  counter?: number;
  userHandle?: string;
}

const FLAGS = { present: 0x01, verified: 0x04, backupEligible: 0x08, backedUp: 0x10, attested: 0x40 };

const base64url = (bytes: string | Uint8Array): string => Buffer.from(bytes).toString('base64url');
const sha256 = (bytes: string | Uint8Array): Buffer => createHash('sha256').update(bytes).digest();

/** One passkey of one account. */
export class SoftwareAuthenticator {
  origin: string;
  readonly id = randomBytes(16);
  readonly #key: KeyObject;
  readonly #publicKey: Buffer;
  #user = '';
  /** Incremented by each use unless it is 0. */
  counter: number;

  constructor(origin: string, { counter = 0 }: { counter?: number } = {}) {
    this.origin = origin;
    this.counter = counter;
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    this.#key = privateKey;
    const { x = '', y = '' } = publicKey.export({ format: 'jwk' });
    const coordinates = [x, y].map((value) => Buffer.from(value, 'base64url'));
    // COSE: { 1: 2, 3: -7, -1: 1, -2: x, -3: y }
    const [head, second] = [Buffer.from('a5010203262001215820', 'hex'), Buffer.from('225820', 'hex')];
    this.#publicKey = Buffer.concat([head, coordinates[0] ?? head, second, coordinates[1] ?? head]);
  }

  /** The same authenticator at another port. */
  at(origin: string): this {
    this.origin = origin;
    return this;
  }

  /** The user handle, base64url. */
  get user(): string {
    return this.#user;
  }

  get name(): string {
    return base64url(this.id);
  }

  /** Creates the passkey: the JSON of `navigator.credentials.create`. */
  create(options: string, deviation: Deviation = {}): string {
    const { challenge, rp, user } = JSON.parse(options) as Options;
    this.#user = user?.id ?? '';
    const length = Buffer.alloc(2);
    length.writeUInt16BE(this.id.length);
    const attested = Buffer.concat([Buffer.alloc(16), length, this.id, this.#publicKey]);
    const data = this.#data(rp?.id ?? '', deviation, attested);
    const size = Buffer.from([0x58, data.length]);
    // CBOR: { fmt: 'none', attStmt: {}, authData }
    const start = Buffer.from('a363666d74646e6f6e656761747453746d74a0686175746844617461', 'hex');
    return JSON.stringify({
      ...{ id: this.name, rawId: this.name, type: 'public-key', clientExtensionResults: {} },
      response: {
        clientDataJSON: base64url(this.#client('webauthn.create', challenge, deviation)),
        attestationObject: base64url(Buffer.concat([start, size, data])),
        transports: ['internal'],
      },
    });
  }

  /** Signs in: the JSON of `navigator.credentials.get`. */
  get(options: string, deviation: Deviation = {}): string {
    const { challenge, rpId = '' } = JSON.parse(options) as Options;
    if (this.counter > 0) this.counter++;
    const client = this.#client('webauthn.get', challenge, deviation);
    const data = this.#data(rpId, deviation);
    const signature = createSign('sha256').update(data).update(sha256(client)).sign(this.#key);
    return JSON.stringify({
      ...{ id: this.name, rawId: this.name, type: 'public-key', clientExtensionResults: {} },
      response: {
        clientDataJSON: base64url(client),
        authenticatorData: base64url(data),
        signature: base64url(signature),
        userHandle: deviation.userHandle ?? this.#user,
      },
    });
  }

  #client(type: string, challenge: string, { origin = this.origin, ...deviation }: Deviation): string {
    const { crossOrigin = false } = deviation;
    const usual = { type: deviation.type ?? type, challenge: deviation.challenge ?? challenge };
    return JSON.stringify({ ...usual, origin, crossOrigin });
  }

  #data(rpId: string, deviation: Deviation, attested = Buffer.alloc(0)): Buffer {
    // Synced passkeys have no counter.
    const { userVerified = true, backupEligible = this.counter === 0 } = deviation;
    const { backedUp = backupEligible } = deviation;
    const flags =
      FLAGS.present |
      (userVerified ? FLAGS.verified : 0) |
      (backupEligible ? FLAGS.backupEligible : 0) |
      (backedUp ? FLAGS.backedUp : 0) |
      (attested.length > 0 ? FLAGS.attested : 0);
    const counter = Buffer.alloc(4);
    counter.writeUInt32BE(deviation.counter ?? this.counter);
    return Buffer.concat([sha256(deviation.rpId ?? rpId), Buffer.from([flags]), counter, attested]);
  }
}

/** What a page contains for the browser. */
export function optionsIn(html: string): string {
  const [, options = ''] = /data-options="([^"]*)"/.exec(html) ?? [];
  return options.replaceAll('&quot;', '"').replaceAll('&#x3D;', '=').replaceAll('&amp;', '&');
}
