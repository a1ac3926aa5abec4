import type { CreateServerOptions, SaasBackendOptions, SaasDecorator } from 'saas-backend';

/** Where the application listens. Tests pass options of saas-backend, too. */
export interface StartOptions extends SaasBackendOptions {
  port: number;
  host: string;
  logLevel?: NonNullable<CreateServerOptions['logLevel']>;
}

/** The running application. */
export interface Running {
  port: number;
  saas: SaasDecorator;
  close(): Promise<void>;
}
