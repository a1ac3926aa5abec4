import { InvalidArgumentError, Option } from 'commander';
import { parseList } from '../../src/core/config/options.js';
import { toTimestamp } from '../../src/core/http/schemas.js';
import type { AllowedResource, AudienceDocument } from '../../src/idp/trust/store.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { parseAllowedResource, resourcesView } from '../options.js';
import { COMMAND_SOURCE, printList, withProvisioning } from '../provisioning.js';
import { answer, fail } from '../terminal.js';

const SET = `Issue identity assertions (ID-JAG) for another authorization server, or replace for what. Applications exchange \
the id_token of a person for them. The server needs IDP_IDENTITY_ASSERTIONS=issue or both.`;

type SetOptions = CommonOptions & {
  clients: AudienceDocument['clients'];
  resource: AllowedResource[];
  alg: 'EdDSA' | 'ES256';
};

export function define(group: CommandLine): void {
  const issuer = 'https://auth.chat.example';
  const set = `idp audience set ${issuer} --clients cid_…=wiki \\
      --resource https://api.chat.example=chat:read`;
  group.examples(set, 'idp audience list', `idp audience remove ${issuer}`);
  group
    .command('set')
    .summary('Issue identity assertions for another authorization server')
    .description(SET)
    .argument('<issuer>', 'Its issuer, exactly as in its metadata')
    .requiredOption(
      '--clients <ids>',
      'Applications that get them, separated by commas, each with =<its client ID there> if that differs',
      parseClients,
    )
    .requiredOption(
      '--resource <uri=scopes>',
      'An API there with the scopes of it that are allowed, separated by commas; repeat it for several',
      parseAllowedResource,
    )
    .addOption(
      new Option('--alg <algorithm>', 'Signature of the assertions')
        .choices(['EdDSA', 'ES256'])
        .default('EdDSA'),
    )
    .examples(set)
    .action((name: string, options: SetOptions) =>
      withProvisioning({ create: true }, async ({ trust }) => {
        const { clients, resource: resources, alg } = options;
        const input = { clients, resources, ...(alg === 'ES256' && { algorithm: alg }) };
        answer(options, viewOf(await trust.setAudience(name, input, COMMAND_SOURCE), options));
      }),
    );
  group
    .command('list')
    .description('List the authorization servers for which assertions are issued')
    .examples('idp audience list --json')
    .action((options: CommonOptions) =>
      printList(options, {
        name: 'audiences',
        columns: ['issuer', 'clients', 'resources', 'alg'],
        viewOf,
        page: ({ trust }, after) => trust.listAudiences(after),
      }),
    );
  group
    .command('remove')
    .description('Issue no further assertion for an authorization server')
    .argument('<issuer>')
    .examples(`idp audience remove ${issuer}`)
    .action((name: string, options: CommonOptions) =>
      withProvisioning({ create: false }, async ({ trust }) => {
        const removed = await trust.removeAudience(name, COMMAND_SOURCE);
        if (!removed) fail(1, `There is no audience ${name}.`);
        answer(options, viewOf(removed, options));
      }),
    );
}

/** `id` or `id=id there`. */
function parseClients(text: string): AudienceDocument['clients'] {
  return parseList(text).map((part) => {
    const [id = '', ...there] = part.split('=');
    const idThere = there.length === 0 ? id : there.join('=');
    if (id === '' || idThere === '') throw new InvalidArgumentError('Use id=id-there, separated by commas.');
    return { id, idThere };
  });
}

const viewOf = (
  { issuer, clients, resources, algorithm, createdAt, updatedAt }: AudienceDocument,
  { json }: CommonOptions,
) => ({
  issuer,
  clients: json
    ? clients.map(({ id, idThere }) => ({ client_id: id, client_id_there: idThere }))
    : clients.map(({ id, idThere }) => (id === idThere ? id : `${id}=${idThere}`)).join(' '),
  resources: resourcesView(resources, json),
  alg: algorithm ?? 'EdDSA',
  created_at: toTimestamp(createdAt),
  updated_at: toTimestamp(updatedAt),
});
