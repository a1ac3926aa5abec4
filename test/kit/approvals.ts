import type { Test } from 'tap';
import { CIBA_GRANT } from '../../src/idp/oidc/tokens/request.js';
import type { ApprovalType } from '../../src/idp/resources/store.js';
import { Agent, type Page } from './agent.js';
import { type Answer, basic } from './app.js';
import { type Credentials, type IdpAppOptions, ISSUER, idpApp, type Parameters, search } from './idp.js';
import { COMMAND_SOURCE } from './operator.js';
import { addResource } from './resources.js';

/** Agents that ask a person to approve one action. */

export const PAYMENTS = 'https://pay.example.test';

export const PAYMENT: ApprovalType = {
  name: 'payment',
  sentence: 'Pay {amount} {currency} to {creditor}',
  fields: [
    { name: 'amount', kind: 'number' },
    { name: 'currency', kind: 'text' },
    { name: 'creditor', kind: 'text' },
    { name: 'urgent', kind: 'boolean', optional: true },
  ],
};

export const DETAILS = { type: 'payment', amount: 12.5, currency: 'EUR', creditor: 'Ada Ltd' };

/** A provider with an API that has payments approved, an agent that may use it, and a person. */
export async function approvalWorld(t: Test, options: IdpAppOptions = {}) {
  const idp = await idpApp(t, { approvals: true, limits: false, ...options });
  const api = await addResource(t, idp, PAYMENTS, {
    name: 'Payments',
    scopes: [{ name: 'pay', description: 'Send payments' }],
  });
  await api.changeApprovals(PAYMENTS, { add: PAYMENT }, COMMAND_SOURCE);
  const agent = await idp.mintAgent({ name: 'Shopper' });
  const human = await idp.makeHuman();

  const ask = (more: Parameters = {}, by: Credentials = agent): Promise<Answer> =>
    idp.request('POST', '/bc-authorize', {
      form: search({ authorization_details: JSON.stringify([DETAILS]), login_hint: human.handle, ...more }),
      headers: { authorization: basic(by.sub, by.password) },
    });
  const poll = (code: string, more: Parameters = {}, by: Credentials = agent): Promise<Answer> =>
    idp.request('POST', '/token', {
      form: search({ grant_type: CIBA_GRANT, auth_req_id: code, ...more }),
      headers: { authorization: basic(by.sub, by.password) },
    });
  /** `auth_req_id` contains the ID of its request. */
  const pathOf = (code: string) => `/approve/apr_${code.slice(3, 35)}`;
  /** Opens the page of a request in a new browser, and signs the person in. */
  const open = async (code: string, who: Credentials = human): Promise<{ browser: Agent; page: Page }> => {
    const origin = await idp.listen();
    const browser = new Agent({ origin });
    const form = await browser.open(origin + pathOf(code));
    return { browser, page: await browser.submit(form, { handle: who.handle, password: who.password }) };
  };
  const decide = async (code: string, decision: 'allow' | 'deny' = 'allow', who: Credentials = human) => {
    const { browser, page } = await open(code, who);
    return { browser, page: await browser.submit(page, { decision }) };
  };
  return { idp, api, agent, human, ask, poll, open, decide, pathOf, issuer: ISSUER };
}
