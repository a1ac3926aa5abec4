import type { FastifyInstance, RouteOptions } from 'fastify';

/** Detects routes that both the host and a plugin declare: Fastify's own error does not name the plugin or a remedy. */
export type RouteConflicts = ReturnType<typeof watchRouteConflicts>;

/** @param remedy advice for the host's developer, as a sentence */
export function watchRouteConflicts(host: FastifyInstance, remedy: string) {
  const added = new Set<string>();
  // Also runs for the plugin's own routes, but before they are added to the set.
  host.addHook('onRoute', (route) => {
    for (const name of namesOf(route)) if (added.has(name)) throw conflict(name, remedy);
  });
  return {
    /** Must be called for each route of the plugin before Fastify adds it. @throws if the host has the same route */
    add(route: RouteOptions & { routePath?: string }): void {
      for (const name of namesOf(route)) {
        const [method = '', url = ''] = name.split(' ');
        if (host.hasRoute({ method: method as 'GET', url })) throw conflict(name, remedy);
        added.add(name);
      }
    },
  };
}

/** Without HEAD, which Fastify adds to every GET route that has none. */
function namesOf({ method, url, routePath }: RouteOptions & { routePath?: string }): string[] {
  // At the prefix of a context, Fastify adds a second route with a slash without calling hooks.
  const urls = routePath === '' ? [url, `${url}/`] : [url];
  const methods = [method].flat().filter((one) => one !== 'HEAD');
  return methods.flatMap((one) => urls.map((path) => `${one} ${path}`));
}

function conflict(name: string, remedy: string): Error {
  const message = `${name} is declared by both this application and saas-backend. ${remedy}`;
  return Object.assign(new Error(message), { code: 'FST_ERR_DUPLICATED_ROUTE' });
}
