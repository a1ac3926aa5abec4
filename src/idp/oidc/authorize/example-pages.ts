import type { Page } from '../../../core/http/pages.js';
import { consentPage, type SignInPages } from './pages.js';
import type { AuthorizationRequest } from './request.js';

const REDIRECT_URI = 'https://grafana.example.com/login/generic_oauth';

/** An application asks for the name and the e-mail address. */
const REQUEST: AuthorizationRequest = {
  parameters: { client_id: 'example', redirect_uri: REDIRECT_URI },
  client: {
    id: 'example',
    name: 'Grafana',
    redirectUris: [REDIRECT_URI],
    postLogoutRedirectUris: [],
    principalKinds: ['human'],
  },
  redirectUri: REDIRECT_URI,
  scope: 'openid profile email',
  targets: [],
};

const NO_CONSENT = { scopes: [], resources: [], revocations: 0, isConnected: false };

/** The pages that need the request of an application, with an example of one. */
export function examplePages(
  signInPages: SignInPages,
  issuer: string,
): { label: string; name: string; page(): Page }[] {
  const person = { token: '', handle: 'ada@example.com' };
  return [
    { label: 'Sign-in', name: 'sign-in', page: () => signInPages.signIn(REQUEST, person) },
    { label: 'Sign-up', name: 'sign-up', page: () => signInPages.signUp(REQUEST, person) },
    {
      label: 'Consent',
      name: 'consent',
      page: () => consentPage(REQUEST, issuer, { ...person, consent: NO_CONSENT }),
    },
  ];
}
