import type { Page, Response } from 'playwright-core';

/** A page of the tour, and how a browser reaches it. */
export interface Stop {
  name: string;
  status: number;
  /** Opens the page. */
  go(page: Page): Promise<Response | null>;
}

export const stop = (name: string, status: number, go: Stop['go']): Stop => ({ name, status, go });

export const open = (url: string) => (page: Page) => page.goto(url);

/** Fills in fields by their labels and submits the form that contains the last one, or else the first form. */
export const send =
  (fields: Record<string, string> = {}) =>
  async (page: Page) => {
    const last = Object.keys(fields).at(-1);
    const form =
      last === undefined ? page : page.locator('form', { has: page.getByLabel(last, { exact: true }) });
    for (const [label, value] of Object.entries(fields)) {
      await page.getByLabel(label, { exact: true }).fill(value);
    }
    const [response] = await Promise.all([page.waitForNavigation(), form.locator('button').first().click()]);
    return response;
  };
