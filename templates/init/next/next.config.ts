import type { NextConfig } from 'next';

export default {
  // The server reads files of its own folder. The client and the hooks are part of the bundle.
  serverExternalPackages: ['saas-backend/next'],
} satisfies NextConfig;
