/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'the preview of an e-mail runs what is in it', file: 'shared/branding/mails.ts',
    replace: "frame-ancestors 'self'; sandbox", by: "frame-ancestors 'self'",
    tests: [['shared/branding/branding', 'each e-mail is shown in a frame that runs nothing, in the chosen language']],
  },
  {
    name: 'the example of a page submits its form', file: 'core/http/pages.ts', in: 'createPages',
    replace: "isExample ? 'sandbox; ' : ''", by: "''",
    tests: [['shared/branding/branding', 'idp shows the e-mails that it sends, and its pages with the request of an example']],
  },
];
