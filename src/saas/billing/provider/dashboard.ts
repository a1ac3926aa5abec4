/** Pages of Stripe's dashboard about objects of the account. */

/** The object of an ID, by its prefix. */
const PATHS: Record<string, string> = {
  sub: 'subscriptions',
  cus: 'customers',
  in: 'invoices',
  pi: 'payments',
  ch: 'payments',
  evt: 'events',
  price: 'prices',
};

/** Returns the page about an object; null if there is none for its kind. */
export type DashboardUrl = (id: string | undefined, livemode?: boolean) => string | null;

/**
 * @param key the API key, whose prefix tells the mode of objects that do not state theirs
 * @param apiUrl another address for the API, whose objects are not in the dashboard
 */
export function createDashboardUrl(key: string | undefined, apiUrl: string | undefined): DashboardUrl {
  const isTestKey = /^[rs]k_test_/.test(key ?? '');
  return (id = '', livemode = !isTestKey) => {
    const [, prefix = ''] = /^([a-z]+)_\w+$/.exec(id) ?? [];
    const path = PATHS[prefix];
    if (path === undefined || apiUrl !== undefined) return null;
    return `https://dashboard.stripe.com/${livemode ? '' : 'test/'}${path}/${id}`;
  };
}
