import type { Client, Directory, Principal } from '../model.js';
import type { GrantDocument } from '../store.js';

/** The principal of a grant, unless it has been locked out or has new credentials since. */
export async function ownerOf(
  { sub, epoch }: Pick<GrantDocument, 'sub' | 'epoch'>,
  directory: Pick<Directory, 'findPrincipal'>,
): Promise<Principal | null> {
  const principal = await directory.findPrincipal(sub);
  return principal?.epoch === epoch ? principal : null;
}

/** The same for whom the client may sign in by now. */
export async function ownerAt(
  client: Pick<Client, 'principalKinds'>,
  grant: Pick<GrantDocument, 'sub' | 'epoch'>,
  directory: Pick<Directory, 'findPrincipal'>,
): Promise<Principal | null> {
  const principal = await ownerOf(grant, directory);
  return principal && client.principalKinds.includes(principal.kind) ? principal : null;
}
