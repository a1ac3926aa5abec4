import { type Static, Type } from 'typebox';
import { option } from '../../core/config/options.js';
import { hostPatternProblem } from './hosts.js';

const hosts = (env: string, doc: string) => ({
  env,
  doc,
  check: (patterns: string[] | undefined) =>
    patterns?.map(hostPatternProblem).find((problem) => problem !== undefined),
});

export const registrationOptions = {
  mcp: option(Type.Boolean({ default: false }), {
    env: 'IDP_MCP',
    doc: 'true lets MCP clients connect that nobody has registered: with a metadata document, as IDP_CLIENT_ID_METADATA, or by registering themselves as public clients without a token. Such a client ends after a day unless a person signs in.',
    shown: 'false',
  }),
  clientIdMetadata: option(Type.Boolean({ default: false }), {
    env: 'IDP_CLIENT_ID_METADATA',
    doc: 'true accepts clients that nobody has registered: their client_id is the https address of a document with their metadata, which idp fetches.',
    shown: 'false',
  }),
  clientIdMetadataHosts: option(
    Type.Optional(Type.Array(Type.String())),
    hosts(
      'IDP_CLIENT_ID_METADATA_HOSTS',
      'The only hosts of such documents, separated by commas; `*.example.com` means the hosts below it. Default: all.',
    ),
  ),
  clientIdMetadataDeniedHosts: option(
    Type.Optional(Type.Array(Type.String())),
    hosts(
      'IDP_CLIENT_ID_METADATA_DENIED_HOSTS',
      'Hosts whose documents are refused, separated by commas. Takes precedence over the list of allowed hosts.',
    ),
  ),
  clientRegistration: option(Type.Boolean({ default: false }), {
    env: 'IDP_CLIENT_REGISTRATION',
    doc: 'true lets applications register themselves at /register (RFC 7591), with a token of `idp registration-token create`.',
    shown: 'false',
  }),
};

/** Read by the service, which names what is wrong in the terms of RFC 7591. */
export const RegistrationBody = Type.Record(Type.String(), Type.Unknown());

export const RegistrationAnswer = Type.Object({
  client_id: Type.String(),
  client_id_issued_at: Type.Integer(),
  client_secret: Type.Optional(Type.String({ description: 'Shown once.' })),
  client_secret_expires_at: Type.Optional(Type.Literal(0)),
  client_name: Type.String(),
  redirect_uris: Type.Array(Type.String()),
  post_logout_redirect_uris: Type.Array(Type.String()),
  token_endpoint_auth_method: Type.String(),
  grant_types: Type.Array(Type.String()),
  response_types: Type.Array(Type.String()),
  jwks: Type.Optional(Type.Unknown()),
  jwks_uri: Type.Optional(Type.String()),
  id_token_signed_response_alg: Type.String(),
  backchannel_logout_uri: Type.Optional(Type.String()),
});

export type RegistrationAnswer = Static<typeof RegistrationAnswer>;
