/**
 * The same as `saas-backend`, for Next.js, which runs a package either outside of its bundle or inside. The server reads files of its own
 * folder and stays outside: `serverExternalPackages: ['saas-backend/next']`. The hooks of `saas-backend/react` go into the bundle, because
 * only there is the React that renders the pages.
 */
export * from '../index.js';
