import { createElement as h, type ReactElement } from 'react';
import { type ActiveSession, type SaasClient, SaasError } from '../../src/client/index.js';
import {
  SaasProvider,
  useLimit,
  useOrganization,
  usePlan,
  useSession,
  useUser,
} from '../../src/react/index.js';

/** A page that shows what each hook returns. */

const CREDENTIALS = { email: 'ada@example.test', password: 'correct horse battery staple' };

interface Given {
  client: SaasClient;
  session?: ActiveSession | null | undefined;
}

function Account({ client }: Given): ReactElement {
  const { status, reload, error } = useSession();
  const { user } = useUser();
  const { plan, entitled, features } = usePlan();
  const { organization, switchTo } = useOrganization();
  const { status: used, limit } = useLimit('projects');
  const button = (name: string, onClick: () => Promise<unknown>) =>
    h('button', { type: 'button', onClick: () => void onClick() }, name);
  return h(
    'main',
    null,
    h(
      'p',
      null,
      [
        ...[status, user ? user.email : 'nobody', plan ?? 'none', entitled],
        ...[features.join() || '-', organization?.name ?? 'personal', used],
        ...(limit ? [`${limit.left} left`] : []),
      ].join(' '),
    ),
    h('p', null, user?.name),
    error instanceof SaasError && h('p', null, `failed ${error.status}`),
    button('Register', () => client.auth.register(CREDENTIALS)),
    button('Sign in', () => client.auth.login(CREDENTIALS)),
    button('Organize', async () => {
      const { organization } = await client.organizations.createOrganization({ name: 'Engines' });
      await switchTo(organization.id);
    }),
    button('Alone', () => switchTo(null)),
    button('Reload', reload),
    button('Sign out', () => client.auth.logout()),
  );
}

export const App = ({ client, session }: Given): ReactElement =>
  h(SaasProvider, { client, session }, h(Account, { client }));
