/** What an application needs beside the files of the documentation. */
export interface Application {
  /** With the files. */
  page: string;
  /** The title of the page. */
  heading: string;
  /** The page names the exact versions. */
  packages: Record<string, string>;
  overrides?: Record<string, string>;
  main?: string;
  files: Record<string, string>;
}

/** An application whose server renders its pages, or serves them with the API. */
export interface Framework extends Application {
  /** A command of the packages. */
  build: string[];
  /** The arguments of Node.js. */
  start: string[];
  /** The document has no address of the user. */
  isRenderedInBrowser?: true;
  /** A form of the dashboard changes the name of the user. */
  hasAction?: true;
}

const APP_HTML =
  '<!doctype html><html lang="en"><head><title>App</title>%sveltekit.head%</head><body><div>%sveltekit.body%</div></body></html>';

const ROOT_TSX = `import { Outlet, Scripts } from 'react-router';

export default () => (
  <html lang="en">
    <head><title>App</title></head>
    <body><Outlet /><Scripts /></body>
  </html>
);
`;

/** The configuration of Vite with one plugin. */
const vite = (importing: string, plugin: string): string =>
  `${importing}
import { defineConfig } from 'vite';
export default defineConfig({ plugins: [${plugin}] });
`;

export const FRAMEWORKS: Framework[] = [
  {
    page: 'docs/saas/nextjs.md',
    heading: 'Next.js',
    packages: {
      next: '16.4.6',
      react: '^19.0.0',
      'react-dom': '^19.0.0',
      '@types/node': '^24.0.0',
      '@types/react': '^19.0.0',
      typescript: '^6.0.0',
    },
    build: ['next', 'build'],
    start: ['node_modules/next/dist/bin/next', 'start'],
    files: {
      'tsconfig.json': JSON.stringify({ compilerOptions: { strict: true, paths: { '@/*': ['./*'] } } }),
    },
    hasAction: true,
  },
  {
    page: 'docs/saas/sveltekit.md',
    heading: 'SvelteKit',
    packages: {
      '@sveltejs/kit': '3.2.0',
      '@sveltejs/adapter-node': '6.0.1',
      vite: '8.4.0',
      '@sveltejs/vite-plugin-svelte': '^7.3.1',
      svelte: '^5.57.3',
      typescript: '^6.0.0',
    },
    build: ['vite', 'build'],
    start: ['build'],
    files: {
      'src/app.html': APP_HTML,
      'vite.config.ts': vite(
        "import adapter from '@sveltejs/adapter-node';\nimport { sveltekit } from '@sveltejs/kit/vite';",
        'sveltekit({ adapter: adapter() })',
      ),
    },
  },
  {
    page: 'docs/saas/astro.md',
    heading: 'Astro',
    packages: { astro: '7.3.5', '@astrojs/node': '11.1.6' },
    build: ['astro', 'build'],
    start: ['dist/server/entry.mjs'],
    files: {},
  },
  {
    page: 'docs/saas/react-router.md',
    heading: 'React Router',
    packages: {
      'react-router': '8.4.0',
      '@react-router/dev': '8.4.0',
      '@react-router/node': '8.4.0',
      '@react-router/serve': '8.4.0',
      react: '^19.0.0',
      'react-dom': '^19.0.0',
      isbot: '^5.0.0',
      vite: '^8.0.0',
      typescript: '^6.0.0',
    },
    build: ['react-router', 'build'],
    start: ['node_modules/@react-router/serve/bin.cjs', 'build/server/index.js'],
    files: {
      'app/root.tsx': ROOT_TSX,
      'vite.config.ts': vite("import { reactRouter } from '@react-router/dev/vite';", 'reactRouter()'),
    },
  },
  {
    page: 'docs/saas/nuxt.md',
    heading: 'Nuxt',
    packages: { nuxt: '4.5.2', vite: '8.2.0' },
    overrides: { vite: '8.2.0' },
    build: ['nuxt', 'build'],
    start: ['.output/server/index.mjs'],
    files: { 'app/app.vue': '<template><NuxtPage /></template>\n' },
  },
  {
    page: 'docs/saas/nest.md',
    heading: 'Nest',
    packages: {
      '@nestjs/core': '12.5.1',
      '@nestjs/common': '12.5.1',
      '@nestjs/platform-express': '12.5.1',
      '@types/express': '^5.0.0',
      '@types/node': '^24.0.0',
      'reflect-metadata': '^0.2.0',
      rxjs: '^7.8.0',
      typescript: '^6.0.0',
    },
    build: ['tsc'],
    start: ['dist/main.js'],
    files: {
      'tsconfig.json': JSON.stringify({
        compilerOptions: {
          ...{ module: 'nodenext', target: 'es2023', rootDir: 'src', outDir: 'dist', strict: true },
          ...{
            experimentalDecorators: true,
            emitDecoratorMetadata: true,
            skipLibCheck: true,
            types: ['node'],
          },
        },
        include: ['src'],
      }),
    },
  },
  {
    page: 'docs/saas/vite-react.md',
    heading: 'Vite and React',
    packages: {
      vite: '8.4.0',
      '@vitejs/plugin-react': '^6.0.0',
      react: '^19.0.0',
      'react-dom': '^19.0.0',
      fastify: '^5.0.0',
      '@fastify/static': '^10.0.0',
    },
    build: ['vite', 'build'],
    start: ['server.js'],
    files: {
      'index.html':
        '<!doctype html><html lang="en"><title>App</title><div id="root"></div><script type="module" src="/src/main.tsx"></script></html>',
    },
    isRenderedInBrowser: true,
  },
];

/** The API of an application that is served elsewhere. */
const SERVER = `import { createServer } from 'saas-backend';

const server = createServer({ billing: { plans: { pro: { name: 'Professional', prices: ['price_1Pro'] } } } });
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => server.stop());
await server.start();
`;

export const EXPO: Application = {
  page: 'docs/saas/expo.md',
  heading: 'Expo and React Native',
  // Those of the template, and those that the page installs.
  packages: {
    expo: '57.0.33',
    'expo-constants': '^57.0.24',
    'expo-linking': '^57.0.11',
    'expo-router': '^57.0.24',
    'react-native': '0.86.3',
    'react-native-safe-area-context': '~5.7.0',
    'react-native-screens': '~4.26.0',
    'react-native-web': '^0.21.4',
    react: '^19.2.3',
    'react-dom': '^19.2.3',
    '@types/react': '~19.2.2',
    typescript: '~6.0.3',
    'expo-crypto': '^57.0.3',
    'expo-secure-store': '^57.0.4',
    'expo-web-browser': '^57.0.3',
  },
  main: 'expo-router/entry',
  files: {
    'app.json': JSON.stringify({
      expo: {
        name: 'Acme',
        slug: 'acme',
        scheme: 'acme',
        web: { output: 'single' },
        plugins: ['expo-router'],
      },
    }),
    'tsconfig.json': JSON.stringify({
      extends: 'expo/tsconfig.base',
      compilerOptions: { strict: true },
      include: ['src'],
    }),
    'server.js': SERVER,
  },
};
