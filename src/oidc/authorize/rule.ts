import type { Client } from '../model.js';

/** Parameters of an authorization request as they came, each at most once. */
export type Parameters = Readonly<Record<string, string>>;

/** An error that the application learns by redirect: a code of RFC 6749 §4.1.2.1 or OIDC Core §3.1.2.6, and a sentence. */
export interface RuleViolation {
  error: string;
  description: string;
}

/** One rule about a request whose client and redirect URI are known. */
export type Rule = (request: { parameters: Parameters; client: Client }) => RuleViolation | null;
