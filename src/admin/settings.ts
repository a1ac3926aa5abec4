import { Type } from 'typebox';
import { type Console, Done } from '../console/console.js';
import { registerForms } from '../console/forms.js';
import type { Scope } from '../http/scope.js';
import { AppError } from '../kernel/errors.js';
import type { Operator } from '../ops/audit.js';
import { SettingsForm } from './schemas.js';

export interface SettingsSource {
  current(): Promise<Settings>;
  /** @throws VERSION_CONFLICT */
  update(settings: Settings, by: Operator): Promise<unknown>;
}

interface Settings {
  siteName: string;
  allowRegistration: boolean;
  maintenanceMode: boolean;
  emailNotifications: boolean;
  version: number;
}

const SWITCH_LABELS = {
  allowRegistration: 'Allow new registrations',
  maintenanceMode: 'Maintenance mode: users cannot sign in or call the API',
  emailNotifications: 'Send notification e-mails (security e-mails are always sent)',
};

const SAVED = 'settings';

/** The page of the global settings. */
export async function settingsPagePlugin(
  scope: Scope,
  { console, settings: source }: { console: Console; settings: SettingsSource },
): Promise<void> {
  console.addNotice(SAVED, 'Saved. All servers use the new settings within two seconds.');

  const viewOf = async (token: string, failure?: string) => {
    const settings = await source.current();
    return {
      title: 'Settings',
      settings: { ...settings, action: 'settings', failure, token },
      switches: Object.entries(SWITCH_LABELS).map(([name, label]) => ({
        name,
        label,
        isOn: settings[name as keyof typeof SWITCH_LABELS],
      })),
    };
  };
  const page = { template: 'admin-settings', section: 'settings' };
  const querystring = Type.Object({ done: Done });

  scope.get('/settings', { config: console.config, schema: { querystring } }, async (request, reply) => {
    const view = await viewOf(console.tokensOf(request).issue());
    return console.send(request, reply, { ...page, view });
  });

  await registerForms(scope, console.tokensOf, (forms) => {
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
          await source.update(settings, console.operatorOf(request));
        } catch (error) {
          if (!(error instanceof AppError && error.code === 'VERSION_CONFLICT')) throw error;
          // Shows the settings as stored by the concurrent change, so that the next attempt builds on them.
          const view = await viewOf(console.tokensOf(request).issue(), error.message);
          return console.send(request, reply.code(error.statusCode), { ...page, view });
        }
        return console.redirect(request, reply, 'settings', SAVED);
      },
    );
  });
}
