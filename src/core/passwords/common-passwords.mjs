// Writes common-passwords.txt: the most common of at least eight bytes, from the dictionary of zxcvbn-ts (MIT).
// npm install --no-save @zxcvbn-ts/language-common@4 && node src/core/passwords/common-passwords.mjs
import { readFileSync, writeFileSync } from 'node:fs';

const MOST = 10_000;

const source = new URL('../../../node_modules/@zxcvbn-ts/language-common/', import.meta.url);
const { version } = JSON.parse(readFileSync(new URL('package.json', source), 'utf8'));
const dictionary = JSON.parse(readFileSync(new URL('src/passwords.json', source), 'utf8'));
const long = dictionary.map((word) => word.normalize('NFC').toLowerCase()).filter(isLongEnough);
const words = [...new Set(long)].slice(0, MOST);
const note = `# From the dictionary of @zxcvbn-ts/language-common ${version}, the most common first.
# Copyright (c) 2012-2016 Dan Wheeler and Dropbox, Inc., (c) 2021 @zxcvbn-ts. MIT License:
# https://github.com/zxcvbn-ts/zxcvbn/blob/master/LICENSE.txt`;
writeFileSync(new URL('common-passwords.txt', import.meta.url), `${note}\n\n${words.join('\n')}\n`);

function isLongEnough(word) {
  return Buffer.byteLength(word) >= 8;
}
