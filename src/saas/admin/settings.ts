import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { AppError } from '../../core/kernel/errors.js';
import { Done, rootOf } from '../../shared/console-kit/console.js';
import { registerForms } from '../../shared/console-kit/forms.js';
import { customFormSchema, customFormView, valuesOf } from './custom-settings.js';
import { SettingsForm } from './schemas.js';
import type { AdminServices } from './services.js';

const SWITCH_LABELS = {
  allowRegistration: 'Allow new registrations',
  maintenanceMode: 'Maintenance mode: users cannot sign in or call the API',
  emailNotifications: 'Send notification e-mails (security e-mails are always sent)',
};

const SAVED = 'settings';

/** The page of the settings, with those of the host below. */
export async function settingsPagePlugin(
  fastify: FastifyTypebox,
  { console, settings: { service, custom } }: AdminServices,
): Promise<void> {
  console.addNotice(SAVED, 'Saved. All servers use the new settings within two seconds.');

  /** @param rejected a submission of one of the forms that was rejected */
  const sendPage = async (
    request: FastifyRequest,
    reply: FastifyReply,
    rejected: { failure?: string; custom?: Parameters<typeof customFormView>[2] } = {},
  ) => {
    const [settings, described] = await Promise.all([service.current(), custom?.describe()]);
    const root = rootOf(request);
    const token = console.tokensOf(request).issue();
    const form = custom && described && customFormView(custom, described, rejected.custom);
    const view = {
      title: 'Settings',
      settings: { ...settings, action: `${root}settings`, failure: rejected.failure, token },
      switches: Object.entries(SWITCH_LABELS).map(([name, label]) => ({
        name,
        label,
        isOn: settings[name as keyof typeof SWITCH_LABELS],
      })),
      custom: form && { ...form, action: `${root}settings/custom`, token },
    };
    return console.send(request, reply, { template: 'admin-settings', section: 'settings', view });
  };

  const querystring = Type.Object({ done: Done });
  fastify.get('/settings', { config: console.config, schema: { querystring } }, (request, reply) =>
    sendPage(request, reply),
  );

  await registerForms(fastify, console.tokensOf, (forms) => {
    forms.post(
      '/settings',
      { config: console.config, schema: { body: SettingsForm } },
      async (request, reply) => {
        const { body } = request;
        try {
          const settings = {
            siteName: body.siteName,
            allowRegistration: body.allowRegistration !== undefined,
            maintenanceMode: body.maintenanceMode !== undefined,
            emailNotifications: body.emailNotifications !== undefined,
            version: Number(body.version),
          };
          await service.update(settings, console.operatorOf(request));
        } catch (error) {
          if (!(error instanceof AppError && error.code === 'VERSION_CONFLICT')) throw error;
          // Shows the settings as stored by the concurrent change, so that the next attempt builds on them.
          return sendPage(request, reply.code(error.statusCode), { failure: error.message });
        }
        return console.redirect(request, reply, 'settings', SAVED);
      },
    );

    if (!custom) return;
    forms.post(
      '/settings/custom',
      { config: console.config, schema: { body: customFormSchema(custom, SettingsForm.properties.version) } },
      async (request, reply) => {
        const body = request.body as Record<string, string | undefined>;
        const given = { version: Number(body['version']), values: valuesOf(custom, body) };
        try {
          await custom.update(given, console.operatorOf(request));
        } catch (error) {
          if (!(error instanceof AppError) || error.statusCode >= 500) throw error;
          const isOutdated = error.code === 'VERSION_CONFLICT';
          const rejected = { body: isOutdated ? {} : body, error };
          return sendPage(request, reply.code(error.statusCode), { custom: rejected });
        }
        return console.redirect(request, reply, 'settings', SAVED);
      },
    );
  });
}
