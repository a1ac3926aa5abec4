import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { compiled } from './kit/process.js';

/**
 * The musts of the security checklist for every endpoint and for the start, and its lines for accounts, billing (from
 * 97 on), provisioning (from 116 on) and OpenID Connect (from 138 on). Each has a test whose title bears its number in
 * brackets: `[24] slow and silent …`.
 */
const MUSTS = [
  ...[1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15, 16, 17, 18, 20, 24, 25, 27, 28, 32],
  ...[33, 34, 35, 36, 37],
  ...[46, 47, 48, 49, 50, 51, 67, 70, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 95],
  ...[97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 115],
  ...[116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135],
  ...[136, 137],
  ...[138, 139, 140, 141, 142, 143, 144, 148, 150, 154, 155, 156, 157, 158, 159, 161, 163, 164, 165, 167],
];

/** The musts that no route can show. */
const ELSEWHERE: Record<number, string> = {
  29: 'An unhandled rejection ends the process: a matter of the programs. In the suite one fails the test it falls into.',
};

t.test('every must of the checklist has a test that bears its number', async (t) => {
  const root = compiled('test');
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' });
  const sources = files.filter((file) => file.endsWith('.test.js')).map((file) => join(root, file));
  const titles = sources.flatMap((file) => [
    ...readFileSync(file, 'utf8').matchAll(/\bt\.test\(\s*(['"`])((?:\[\d+\])+) /g),
  ]);
  const borne = new Set(titles.flatMap(([, , numbers = '']) => numbers.match(/\d+/g)?.map(Number) ?? []));
  for (const number of MUSTS) t.ok(borne.has(number), `[${number}]`);
  for (const number of Object.keys(ELSEWHERE)) t.notOk(MUSTS.includes(Number(number)));
});
