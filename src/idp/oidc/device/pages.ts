import { type Localized, longTime } from '../../../core/http/messages.js';
import type { Page } from '../../../core/http/pages.js';
import { scopesShown, viewOfTarget } from '../authorize/pages.js';
import { namesIn } from '../resources.js';
import { showUserCode } from './codes.js';
import type { DeviceRequest } from './service.js';

/** The pages on which a person signs in a device. None of them needs a script. */

/** The form of a page, which belongs to the session of its reader. */
interface FormView {
  action: string;
  /** The token of the form. */
  form: string;
}

/** Asks for the code that the device shows. */
export const codePage = (view: FormView & { code: string; problems?: Localized[] }): Page => ({
  template: 'device',
  view: { ...view },
});

/** Asks for the decision, and warns of a code that another person has sent. */
export function confirmationPage(
  { client, userCode, scope, targets, place, system, createdAt }: DeviceRequest,
  { handle, isElsewhere, ...view }: FormView & { handle: string; isElsewhere: boolean; otherCode: string },
): Page {
  const isLasting = namesIn(scope).includes('offline_access');
  return {
    template: 'device-confirm',
    ...(client.logoUri !== undefined && { imageSources: [new URL(client.logoUri).origin] }),
    view: {
      clientLogo: client.logoUri,
      clientName: client.name || client.id,
      code: showUserCode(userCode),
      when: longTime(createdAt),
      place,
      system,
      isElsewhere,
      handle,
      learns: scopesShown(scope, client),
      resources: targets.map((target) => viewOfTarget(target, isLasting)),
      ...view,
    },
  };
}

/** What was decided. */
export const decidedPage = (decision: 'allow' | 'deny', clientName: string): Page =>
  decision === 'allow'
    ? { template: 'device-allowed', view: { clientName } }
    : { template: 'device-denied', view: { clientName } };
