import type { FastifyInstance, RouteOptions } from 'fastify';

/**
 * Routes that a host and we both want. Fastify would name the path only; the host's developer needs to know that the
 * other route is ours, and what moves it.
 */
export interface RouteConflicts {
  /** To be called for each route of ours, before Fastify adds it. @throws where the host has such a route */
  claim(route: RouteOptions & { routePath?: string }): void;
}

/** @param remedy what the host's developer can do, as a sentence */
export function watchRouteConflicts(host: FastifyInstance, remedy: string): RouteConflicts {
  const ours = new Set<string>();
  // Runs for routes of ours, too, but before they are claimed.
  host.addHook('onRoute', (route) => {
    for (const name of namesOf(route)) if (ours.has(name)) throw conflict(name, remedy);
  });
  return {
    claim(route) {
      for (const name of namesOf(route)) {
        const [method = '', url = ''] = name.split(' ');
        if (host.hasRoute({ method: method as 'GET', url })) throw conflict(name, remedy);
        ours.add(name);
      }
    },
  };
}

/** HEAD is left out: Fastify adds it to every GET, and gives way to one that is there. */
function namesOf({ method, url, routePath }: RouteOptions & { routePath?: string }): string[] {
  // At the prefix of a scope Fastify adds a second route with a slash, for which no hook runs.
  const urls = routePath === '' ? [url, `${url}/`] : [url];
  const methods = [method].flat().filter((one) => one !== 'HEAD');
  return methods.flatMap((one) => urls.map((path) => `${one} ${path}`));
}

function conflict(name: string, remedy: string): Error {
  const message = `${name} is declared by both this application and saas-backend. ${remedy}`;
  return Object.assign(new Error(message), { code: 'FST_ERR_DUPLICATED_ROUTE' });
}
