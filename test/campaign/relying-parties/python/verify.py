"""Verifies one id_token with several libraries, and an access token for an API with PyJWT.

Reads the tokens, the JWK Set, the issuer, the client ID, the API and the algorithm as JSON, and prints the subject that
each library found, or its error.
"""

import json
import sys

import jose.jwt
import jwt
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


def pyjwt(access_token, jwks, issuer, resource, algorithm):
    kid = jwt.get_unverified_header(access_token)["kid"]
    key = jwt.PyJWKSet.from_dict(jwks)[kid]
    return jwt.decode(access_token, key, algorithms=[algorithm], audience=resource, issuer=issuer)


def outcome(verify, given):
    try:
        return verify(**given)["sub"]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main():
    given = json.load(sys.stdin)
    access = {name: given.pop(name) for name in ("access_token", "resource")}
    libraries = [python_jose, pyoidc, idpyoidc, social_core]
    found = {verify.__name__: outcome(verify, given) for verify in libraries}
    known = {name: given[name] for name in ("jwks", "issuer", "algorithm")}
    print(json.dumps({**found, "pyjwt": outcome(pyjwt, {**known, **access})}))


main()
