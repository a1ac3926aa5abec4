import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { Email, matchesSchema, OptionalName } from '../../core/http/schemas.js';
import type { PagesWith, Passkeys } from './context.js';
import { PasskeyBody, ReturnQuery } from './schemas.js';
import { type SignInPages, withReturn } from './sign-in-pages.js';
import { type SignUpForm, signUpBodyOf } from './sign-up.js';

const CONFIG = access('public', { page: true });
/** During maintenance, operators sign in: `finish` refuses everybody else. */
const OPEN = access('public', { page: true, duringMaintenance: true });

/** Sign-in and registration with a passkey. */
export async function passkeysPlugin(
  fastify: FastifyTypebox,
  options: PagesWith<'passkeys'> & { signInPages: SignInPages; signUpForm: SignUpForm },
): Promise<void> {
  const { passkeys, signInPages, signUpForm, pages, messages, path } = options;
  const route = { config: CONFIG, schema: { querystring: ReturnQuery, body: PasskeyBody } };

  fastify.post('/sign-in/passkey', { ...route, config: OPEN }, async (request, reply) => {
    const { return_to: returnTo } = request.query;
    const attempt = passkeys.signIn(responseIn(request.body), requestSource(request));
    return signInPages.finish(request, reply, attempt, { returnTo });
  });

  fastify.post(
    '/sign-up/passkey',
    { config: CONFIG, schema: { querystring: ReturnQuery, body: signUpBodyOf(signUpForm) } },
    async (request, reply) => {
      const { return_to: returnTo } = request.query;
      const { name } = request.body;
      const email = request.body.email.trim();
      const given = signUpForm.fieldForm.read(request.body);
      if (
        !(await options.registrationAllowed()) ||
        !matchesSchema(email, Email) ||
        !matchesSchema(name, OptionalName)
      )
        return signUpForm.send(reply, { returnTo, email, name, ...given });
      try {
        const begun = passkeys.beginSignUp({ email, ...(name && { name }), ...given });
        return await pages.send(reply, creationPage(returnTo, email, begun));
      } catch (error) {
        return signUpForm.reject(reply, error, { returnTo, email, name, ...given });
      }
    },
  );

  fastify.post('/sign-up/passkey/finish', route, async (request, reply) => {
    const { return_to: returnTo } = request.query;
    const locale = messages.negotiate(request);
    const attempt = passkeys.signUp(responseIn(request.body), locale, requestSource(request));
    return signUpForm.finish(request, reply, attempt, { returnTo });
  });

  const creationPage = (
    returnTo: string | undefined,
    email: string,
    { ceremony, options: given }: ReturnType<Passkeys['beginSignUp']>,
  ): Page => ({
    template: 'user-sign-up-passkey',
    view: {
      action: withReturn(`${path()}/sign-up/passkey/finish`, returnTo),
      signUpHref: withReturn(`${path()}/sign-up`, returnTo),
      email,
      ceremony,
      options: JSON.stringify(given),
    },
    script: passkeys.script,
  });
}

/** The response of a browser, whose JSON the script of the page has put into the form. */
function responseIn({ ceremony, credential }: { ceremony: string; credential: string }) {
  let parsed: unknown;
  try {
    parsed = JSON.parse(credential);
  } catch {
    // Without the script, there is none.
  }
  return { ceremony, credential: Object(parsed) as object };
}
