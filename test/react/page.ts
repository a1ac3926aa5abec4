import { createElement, StrictMode } from 'react';
import { hydrateRoot } from 'react-dom/client';
import { type ActiveSession, createClient } from '../../src/client/index.js';
import { App } from './app.js';

/** The script of a page that a server has rendered. */

interface Page {
  GIVEN: ActiveSession | null | undefined;
  document: { getElementById(id: string): Element };
}
const { GIVEN: session, document } = globalThis as unknown as Page;
const client = createClient({ baseUrl: '/api', storage: 'cookie' });
const app = createElement(StrictMode, null, createElement(App, { client, session }));
hydrateRoot(document.getElementById('root'), app);
