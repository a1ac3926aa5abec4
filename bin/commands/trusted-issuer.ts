import { parseList } from '../../src/core/config/options.js';
import { toTimestamp } from '../../src/core/http/schemas.js';
import type { AllowedResource, TrustedIssuerDocument } from '../../src/idp/trust/store.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { parseAllowedResource, resourcesView } from '../options.js';
import { COMMAND_SOURCE, printList, withPrincipal, withProvisioning } from '../provisioning.js';
import { answer, fail } from '../terminal.js';

const SET = `Accept the identity assertions (ID-JAG) of another provider, or replace what it is trusted for. Its keys are \
read by its metadata. The server needs IDP_IDENTITY_ASSERTIONS=accept or both.`;

const LINK = `Say which person here a subject of a trusted issuer is. Nothing else links them: an equal e-mail address \
proves nothing.`;

type SetOptions = CommonOptions & { clients: string[]; resource: AllowedResource[] };
type LinkOptions = CommonOptions & { subject: string };

export function define(group: CommandLine): void {
  const issuer = 'https://login.acme.example';
  const set = `idp trusted-issuer set ${issuer} --clients cid_… \\
      --resource https://api.example.com=files:read`;
  const link = `idp trusted-issuer link ${issuer} ada@example.com \\
      --subject 00u1a2b3`;
  group.examples(set, link, 'idp trusted-issuer list');
  group
    .command('set')
    .summary('Accept the identity assertions of another provider')
    .description(SET)
    .argument('<issuer>', 'Its issuer, exactly as in its metadata')
    .requiredOption('--clients <ids>', 'Applications that may present them, separated by commas', parseList)
    .requiredOption(
      '--resource <uri=scopes>',
      'An API with the scopes of it that are allowed, separated by commas; repeat it for several',
      parseAllowedResource,
    )
    .examples(set)
    .action((name: string, options: SetOptions) =>
      withProvisioning({ create: true }, async ({ trust }) => {
        const { clients, resource: resources } = options;
        answer(options, viewOf(await trust.setIssuer(name, { clients, resources }, COMMAND_SOURCE), options));
      }),
    );
  group
    .command('list')
    .description('List the providers whose assertions are accepted')
    .examples('idp trusted-issuer list --json')
    .action((options: CommonOptions) =>
      printList(options, {
        name: 'trusted_issuers',
        columns: ['issuer', 'clients', 'resources'],
        viewOf,
        page: ({ trust }, after) => trust.listIssuers(after),
      }),
    );
  group
    .command('remove')
    .description('Accept no further assertion of a provider, and forget which people its subjects are')
    .argument('<issuer>')
    .examples(`idp trusted-issuer remove ${issuer}`)
    .action((name: string, options: CommonOptions) =>
      withProvisioning({ create: false }, async ({ trust }) => {
        const removed = await trust.removeIssuer(name, COMMAND_SOURCE);
        answer(options, viewOf(removed ?? untrusted(name), options));
      }),
    );
  group
    .command('link')
    .summary('Say which person a subject of a provider is')
    .description(LINK)
    .argument('<issuer>')
    .argument('<handle>', 'User name of the person here')
    .requiredOption('--subject <sub>', 'The `sub` in the assertions')
    .examples(link)
    .action((name: string, handle: string, options: LinkOptions) =>
      withPrincipal(handle, async (person, { trust }) => {
        if (person.kind !== 'human') fail(1, `${handle} is an agent. Only people can be linked.`);
        const { subject } = options;
        const linked = await trust.link(name, subject, person.id, COMMAND_SOURCE);
        if (!linked) untrusted(name);
        answer(options, { issuer: name, subject, sub: person.id, handle });
      }),
    );
  group
    .command('unlink')
    .description('Forget which person a subject of a provider is')
    .argument('<issuer>')
    .requiredOption('--subject <sub>', 'The `sub` in the assertions')
    .examples(`idp trusted-issuer unlink ${issuer} --subject 00u1a2b3`)
    .action((name: string, options: LinkOptions) =>
      withProvisioning({ create: false }, async ({ trust }) => {
        const { subject } = options;
        const removed = await trust.unlink(name, subject, COMMAND_SOURCE);
        if (!removed) fail(1, `The subject ${subject} of ${name} is not linked.`);
        answer(options, { issuer: name, subject, sub: removed.principal });
      }),
    );
  group
    .command('links')
    .description('List the linked subjects of a provider')
    .argument('<issuer>')
    .examples(`idp trusted-issuer links ${issuer} --json`)
    .action((name: string, options: CommonOptions) =>
      printList(options, {
        name: 'links',
        columns: ['subject', 'sub', 'created_at'],
        viewOf: ({ subject, principal, createdAt }) => ({
          subject,
          sub: principal,
          created_at: toTimestamp(createdAt),
        }),
        page: ({ trust }, after) => trust.listLinks(name, after),
      }),
    );
}

const viewOf = (
  { issuer, clients, resources, createdAt, updatedAt }: TrustedIssuerDocument,
  { json }: CommonOptions,
) => ({
  issuer,
  clients: json ? clients : clients.join(' '),
  resources: resourcesView(resources, json),
  created_at: toTimestamp(createdAt),
  updated_at: toTimestamp(updatedAt),
});

function untrusted(issuer: string): never {
  return fail(1, `The issuer ${issuer} is not trusted.`);
}
