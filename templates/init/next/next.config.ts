import type { NextConfig } from 'next';

export default {
  // It reads files of its own folder.
  serverExternalPackages: ['saas-backend'],
} satisfies NextConfig;
