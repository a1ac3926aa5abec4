import type { User } from 'saas-backend';

/** The pages of this application, as HTML. Those of accounts are at /account. */

export const homePage = () =>
  page(
    'my-app',
    html`<p><a href="/dashboard">Dashboard</a> <a href="/account/sign-up">Create an account</a></p>`,
  );

export const dashboardPage = ({ email, subscription }: User) =>
  page(
    'Dashboard',
    html`<p>Signed in as ${email}. Plan: ${subscription.plan}.</p>
      <p><a href="/reports">Reports</a> <a href="/account">Account</a> <a href="/account/sign-out">Sign out</a></p>`,
  );

export const reportsPage = ({ email }: User) =>
  page('Reports', html`<p>For subscribers such as ${email}.</p>`);

export const upgradePage = () =>
  page(
    'Reports',
    html`<p>Reports need the plan Professional. <a href="/account/billing">Choose a plan</a></p>`,
  );

const page = (title: string, body: Html) =>
  html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width" />
        <title>${title}</title>
      </head>
      <body>
        <h1>${title}</h1>
        ${body}
      </body>
    </html>`.text;

/** HTML, which is inserted as it is. */
class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** Escapes the values of a template, except those that are HTML. */
function html(strings: TemplateStringsArray, ...values: (string | Html)[]): Html {
  const texts = values.map((value) => (value instanceof Html ? value.text : escaped(value)));
  return new Html(String.raw({ raw: strings }, ...texts));
}

const escaped = (text: string) => text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
