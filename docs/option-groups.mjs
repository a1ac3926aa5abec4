/**
 * The options of both programs by job, each with an example: the text of its variable. `make` is a command that prints a secret, `path` a
 * file of yours, and `''` a value that only you know. docs/generate.mjs checks that each option has one place and that its example is valid.
 */

const make = 'openssl rand -hex 32';

const database = { databaseUri: 'postgres://app@db.example.com/app' };

const factors = {
  passkeys: 'true',
  factorEncryptionKey: { make },
  factorEncryptionKeyPrevious: { make: 'the old FACTOR_ENCRYPTION_KEY' },
  secondFactor: 'required',
  secondFactorGraceDays: '14',
};

const email = {
  emailApiKey: '',
  emailService: 'Postmark',
  emailUser: 'apikey',
  emailSmtpUrl: 'smtps://app:password@mail.example.com',
  emailApiUrl: 'https://api.resend.com/emails',
  fromEmail: 'hello@example.com',
  fromName: 'Example',
  emailReplyTo: 'support@example.com',
  operatorEmails: 'ada@example.com,grace@example.com',
  emailTemplateDir: { path: './templates/email' },
};

const brand = {
  brandName: 'Example',
  brandLogo: { path: './logo.svg' },
  brandLogoDark: { path: './logo-dark.svg' },
  brandAccent: '#0b6e4f',
  defaultLocale: 'de',
  messagesDir: { path: './messages' },
};

const limits = {
  maxRegistrationsPerHour: '20',
  maxLoginsPerMinute: '60',
  maxMailRequestsPerHour: '20',
  maxRequestsPerMinute: '600',
  callerSecret: { make },
};

const operation = {
  host: '0.0.0.0',
  port: '8000',
  trustProxy: '10.0.0.0/8',
  maxConnections: '4096',
  maxConnectionsPerAddress: '256',
  logLevel: 'warn',
  metrics: 'true',
  telemetry: 'true',
  cronSecret: { make },
  auditRetentionDays: '90',
};

export const OPTION_GROUPS = {
  'saas-backend': {
    Storage: database,
    Addresses: {
      publicUrl: 'https://app.example.com',
      corsOrigin: 'https://www.example.com,http://localhost:5173',
    },
    'Sessions and tokens': {
      jwtAccessSecret: { make },
      jwtAccessSecretPrevious: { make: 'the old JWT_ACCESS_SECRET' },
      jwtRefreshSecret: { make },
      jwtRefreshSecretPrevious: { make: 'the old JWT_REFRESH_SECRET' },
      jwtAccessKey: { make },
      jwtAccessKeyPrevious: { make },
      jwtAccessAudience: 'https://files.example.com',
      accessTokenTtl: '600',
      refreshTokenTtl: '1209600',
      sessionMaxAge: '7776000',
      refreshTokenReuseWindow: '60',
    },
    'Sign-up and sign-in': {
      accountPages: 'true',
      requireEmailVerification: 'true',
      resetUrlRelative: '/password/new',
      verifyUrlRelative: '/welcome',
      emailLogin: 'true',
      emailLoginUrlRelative: '/sign-in/code',
      login: '{"google":{"clientId":"x","clientSecret":"y"}}',
      ...factors,
    },
    'Roles and organizations': {
      userRoles: 'editor,support',
      impersonationRoles: 'support',
      organizations: 'true',
      organizationInvitationUrlRelative: '/join',
      organizationMaxMembers: '50',
    },
    'API keys and agents': {
      apiKeys: 'true',
      agentIssuer: 'https://id.example.com',
      agentResource: 'https://app.example.com/api',
      agentClientId: 'cid_app',
      agentClientSecret: '',
    },
    Billing: {
      paymentSecretKey: '',
      paymentWebhookSecret: '',
      paymentWebhookSecretPrevious: { make: 'the old PAYMENT_WEBHOOK_SECRET' },
      billing: '{"pro":{"prices":["price_123"],"features":["export"],"limits":{"projects":10}}}',
      billingPrices: 'price_123=pro,price_456=team',
      pastDue: '14',
      billingAllowPause: '1',
      billingMails: 'receipt,payment-failed',
      billingProration: 'create_prorations',
      billingReturnUrlRelative: '/account/plan',
      paymentApiUrl: 'http://127.0.0.1:12111',
    },
    'E-mail': email,
    'Brand and languages': brand,
    'Admin area and settings': {
      adminUsername: 'operator',
      adminPassword: { make },
      settingsEncryptionKey: { make },
      settingsEncryptionKeyPrevious: { make: 'the old SETTINGS_ENCRYPTION_KEY' },
    },
    'Webhook endpoints': { webhooks: 'true', webhookPrivateNetworks: 'true' },
    'Rate limits': limits,
    'Server and operation': operation,
  },
  idp: {
    Storage: database,
    Addresses: { publicUrl: 'https://id.example.com' },
    'Signing keys': {
      ed25519Seed: { make },
      ed25519SeedNext: { make },
      ed25519SeedPrevious: { make: 'the old IDP_ED25519_SEED' },
      es256Key: { make },
      es256KeyNext: { make },
      es256KeyPrevious: { make: 'the old IDP_ES256_KEY' },
    },
    'Sign-up and sign-in': {
      disableSignup: '1',
      basicLogin: 'agents',
      trustedEmailDomains: 'example.com',
      supportContact: 'help@example.com',
      deviceFlow: '1',
      ...factors,
      factorEncryptionKeyPrevious: { make: 'the old IDP_FACTOR_ENCRYPTION_KEY' },
    },
    Applications: {
      clientRegistration: 'true',
      mcp: 'true',
      clientIdMetadata: 'true',
      clientIdMetadataHosts: 'app.example.com,*.example.org',
      clientIdMetadataDeniedHosts: 'old.example.com',
      clientAssertions: 'token-endpoint',
      nativeSchemes: 'cursor,vscode',
      refreshTokenReuseWindow: '60',
      backchannelPrivateNetworks: '1',
      loopbackDocuments: '1',
    },
    'Agents and approvals': { approvals: 'true', identityAssertions: 'both' },
    Administration: { adminToken: { make }, inviteToken: { make } },
    'E-mail': email,
    'Brand and languages': brand,
    'Rate limits': limits,
    'Server and operation': operation,
  },
};
