import type { FastifyReply, FastifyRequest } from 'fastify';
import { mountPath } from '../../../core/config/public-url.js';
import { type Localized, message } from '../../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../../core/http/routes.js';
import { addressBlock } from '../../../core/kernel/addresses.js';
import { createFormTokens } from '../../../shared/console-kit/forms.js';
import { findRefusal } from '../admission.js';
import { authenticateClient } from '../client-auth.js';
import type { FirstPartySignIn } from '../first-party-sign-in.js';
import { AnyForm } from '../schemas.js';
import type { OidcServices } from '../services.js';
import { readCredentials, readResources } from '../tokens/request.js';
import { readUserCode, showUserCode } from './codes.js';
import { codePage, confirmationPage, decidedPage } from './pages.js';
import {
  DeviceAuthorizationResponse,
  DeviceCodeBody,
  DeviceConfirmationBody,
  DeviceQuery,
} from './schemas.js';
import type { DeviceFlow } from './service.js';

type User = NonNullable<Awaited<ReturnType<FirstPartySignIn['userOf']>>>;

interface DeviceServices extends OidcServices {
  device: DeviceFlow;
}

/** The endpoint for devices (RFC 8628 §3.1). */
export async function deviceAuthorizationPlugin(
  fastify: FastifyTypebox,
  services: DeviceServices,
): Promise<void> {
  const { device, issuer } = services;
  fastify.post(
    '/device_authorization',
    { config: access('client'), schema: { body: AnyForm, response: { 200: DeviceAuthorizationResponse } } },
    async (request, reply) => {
      const credentials = readCredentials(request);
      const { body: fields } = credentials;
      const client = await authenticateClient(credentials, services);
      const asked = { scope: fields['scope'], resources: readResources(request.body) };
      const begun = await device.begin(client, asked, requestSource(request));
      const { deviceCode, userCode, expiresIn, interval } = begun;
      const code = showUserCode(userCode);
      reply.header('pragma', 'no-cache');
      return {
        device_code: deviceCode,
        user_code: code,
        verification_uri: `${issuer()}/device`,
        verification_uri_complete: `${issuer()}/device?user_code=${code}`,
        expires_in: expiresIn,
        interval,
      };
    },
  );
}

/** The page on which a person enters the code that a device shows (RFC 8628 §3.3). */
export async function devicePlugin(fastify: FastifyTypebox, services: DeviceServices): Promise<void> {
  const { device, signIn, pages, issuer, clock } = services;
  const config = access('public', { page: true });
  const path = () => `${mountPath(issuer())}/device`;

  // A code in the address only fills in the form: a person who follows a link has compared nothing yet.
  fastify.get('/device', { config, schema: { querystring: DeviceQuery } }, async (request, reply) => {
    const { user_code: code = '' } = request.query;
    const user = await signIn.userOf(request);
    return user ? sendCodePage(reply, user, shown(code)) : sendSignIn(request, reply, code);
  });

  fastify.post('/device', { config, schema: { body: DeviceCodeBody } }, async (request, reply) => {
    const { form, user_code: typed } = request.body;
    const user = await signIn.userOf(request);
    if (!user) return sendSignIn(request, reply, typed);
    if (!formsOf(user).isValid(form)) return sendCodePage(reply.code(403), user, shown(typed), STALE);
    const { ip } = requestSource(request);
    pages.keepForm(request, codeForm(user, shown(typed)));
    const found = await device.enter(typed, user.principal.id, ip);
    if (!found) return sendCodePage(reply.code(404), user, shown(typed), UNKNOWN);
    if (findRefusal(found, user.principal)) return sendCodePage(reply.code(403), user, shown(typed), REFUSED);
    const { userCode, place } = found;
    const view = {
      action: `${path()}/confirm`,
      form: formsOf(user, userCode).issue(),
      handle: user.principal.handle,
      isElsewhere: place !== undefined && place !== addressBlock(ip),
      otherCode: path(),
    };
    return pages.send(reply, confirmationPage(found, view));
  });

  fastify.post(
    '/device/confirm',
    { config, schema: { body: DeviceConfirmationBody } },
    async (request, reply) => {
      const { form, user_code: typed, decision } = request.body;
      const user = await signIn.userOf(request);
      if (!user) return sendSignIn(request, reply, typed);
      const userCode = readUserCode(typed) ?? '';
      // The form proves that the code was entered before, so that no guess evades the limits here.
      if (!formsOf(user, userCode).isValid(form))
        return sendCodePage(reply.code(403), user, shown(typed), STALE);
      const { ip } = requestSource(request);
      const found = await device.find(userCode);
      const decide = decision === 'allow' ? device.approve : device.deny;
      if (!found || !(await decide(found, user, ip))) {
        return sendCodePage(reply.code(404), user, shown(typed), UNKNOWN);
      }
      return pages.send(reply, decidedPage(decision, found.client.name || found.client.id));
    },
  );

  /** @param userCode the code that the form confirms; absent for the form that asks for one */
  const formsOf = ({ token }: User, userCode = '') =>
    createFormTokens({ secret: `device ${token} ${userCode}`, clock });

  const codeForm = (user: User, code: string, problems?: Localized[]) =>
    codePage({ action: path(), form: formsOf(user).issue(), code, ...(problems && { problems }) });

  const sendCodePage = (reply: FastifyReply, user: User, code: string, problems?: Localized[]) =>
    pages.send(reply, codeForm(user, code, problems));

  function sendSignIn(request: FastifyRequest, reply: FastifyReply, typed: string): FastifyReply {
    const code = shown(typed);
    const returnTo = code === '' ? '/device' : `/device?user_code=${code}`;
    return signIn.sendSignIn(request, reply, { returnTo, name: 'the device page' });
  }
}

const UNKNOWN = [message('device.unknown')];

const REFUSED = [message('device.refused')];

const STALE = [message('device.stale')];

/** What the form is filled with: a code, and no other text of an address. */
function shown(typed: string): string {
  const code = readUserCode(typed);
  return code === undefined ? '' : showUserCode(code);
}
