// The pages of the site by group: [path in docs, name, what it is about, text if it is generated for the site].
import { readFileSync } from 'node:fs';
import { httpGroups } from './http-pages.mjs';

export const groups = [
  ...JSON.parse(readFileSync(new URL('navigation.json', import.meta.url), 'utf8')),
  ...httpGroups(),
];
