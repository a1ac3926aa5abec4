"""Verifies one id_token with several libraries.

Reads the id_token, the JWK Set, the issuer, the client ID and the algorithm as JSON, and prints the subject that each
library found, or its error.
"""

import json
import sys

import jose.jwt
from cryptojwt import KeyJar
from idpyoidc.message.oidc import IdToken
from oic.oic.message import IdToken as OicIdToken
from oic.utils.keyio import KeyJar as OicKeyJar
from social_core.backends.open_id_connect import OpenIdConnectAuth
from social_core.strategy import BaseStrategy


def python_jose(id_token, jwks, issuer, client_id, algorithm):
    # It does not read a key set with a key that it does not know, even if the token names another.
    kid = jose.jwt.get_unverified_header(id_token)["kid"]
    key = next(key for key in jwks["keys"] if key["kid"] == kid)
    return jose.jwt.decode(id_token, key, algorithms=[algorithm], audience=client_id, issuer=issuer)


def pyoidc(id_token, jwks, issuer, client_id, algorithm):
    keys = OicKeyJar()
    keys.import_jwks(jwks, issuer)
    claims = OicIdToken().from_jwt(id_token, keyjar=keys, algs={"sign": algorithm})
    claims.verify(iss=issuer, client_id=client_id)
    return claims


def idpyoidc(id_token, jwks, issuer, client_id, algorithm):
    keys = KeyJar()
    keys.import_jwks(jwks, issuer)
    claims = IdToken().from_jwt(id_token, keyjar=keys, sigalg=algorithm)
    claims.verify(iss=issuer, client_id=client_id, allowed_sign_alg=algorithm)
    return claims


def social_core(id_token, jwks, issuer, client_id, algorithm):
    class Strategy(BaseStrategy):
        def get_setting(self, name):
            return {
                "SOCIAL_AUTH_OIDC_KEY": client_id,
                "SOCIAL_AUTH_OIDC_JWT_ALGORITHMS": [algorithm],
            }[name]

        def request_data(self, merge=True):
            return {}

        def build_absolute_uri(self, path=None):
            return path

    class Backend(OpenIdConnectAuth):
        def get_jwks_keys(self):
            return jwks["keys"]

        def id_token_issuer(self):
            return issuer

    return Backend(Strategy()).decode_and_validate_id_token(id_token, None)


def outcome(verify, given):
    try:
        return verify(**given)["sub"]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main():
    given = json.load(sys.stdin)
    libraries = [python_jose, pyoidc, idpyoidc, social_core]
    print(json.dumps({verify.__name__: outcome(verify, given) for verify in libraries}))


main()
