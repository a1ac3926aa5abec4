import type { SaasBackendOptions } from 'saas-backend';

/**
 * The parts of saas-backend that this application uses, and what it sells. Addresses and secrets are variables of the environment:
 * `.env.example`.
 */
export const backendOptions = {
  accountPages: true,
  apiKeys: true,
  billing: {
    plans: {
      // The ID of your price at Stripe. This one is that of the stand-in for development.
      pro: { name: 'Professional', prices: ['price_1Pro'] },
    },
  },
} satisfies SaasBackendOptions;
