"""A relying party: PyJWT with its PyJWKClient, the rest of OpenID Connect by hand.

Reads its registration from the environment, prints the address to sign in at, reads the address that the browser was
sent back to, and prints what it then knows.
"""

import json
import os
import secrets
import sys
from urllib.parse import parse_qs, quote_plus, urlencode, urlsplit

import jwt
import requests

# The length of the state that Keycloak sends.
STATE_LENGTH = 175


def main():
    issuer, client_id, client_secret, redirect_uri = (
        os.environ[name] for name in ("ISSUER", "CLIENT_ID", "CLIENT_SECRET", "REDIRECT_URI")
    )
    metadata = requests.get(issuer + "/.well-known/openid-configuration", timeout=10).json()
    state = secrets.token_urlsafe(STATE_LENGTH)[:STATE_LENGTH]
    nonce = secrets.token_urlsafe()
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "scope": "openid email profile",
        "state": state,
        "nonce": nonce,
    }
    print(f"{metadata['authorization_endpoint']}?{urlencode(query)}", flush=True)

    answer = parse_qs(urlsplit(sys.stdin.readline().strip()).query)
    if answer["state"] != [state] or answer["iss"] != [issuer]:
        raise ValueError("the answer belongs to another sign-in")
    response = requests.post(
        metadata["token_endpoint"],
        data={"grant_type": "authorization_code", "code": answer["code"][0], "redirect_uri": redirect_uri},
        # RFC 6749 §2.3.1: both halves are form-encoded.
        auth=(quote_plus(client_id), quote_plus(client_secret)),
        timeout=10,
    )
    response.raise_for_status()
    tokens = response.json()

    key = jwt.PyJWKClient(metadata["jwks_uri"]).get_signing_key_from_jwt(tokens["id_token"])
    claims = jwt.decode(
        tokens["id_token"],
        key,
        algorithms=["EdDSA"],
        audience=client_id,
        issuer=issuer,
        options={"require": ["iss", "aud", "sub", "exp", "iat"]},
    )
    if claims["nonce"] != nonce:
        raise ValueError("the nonce is another one")
    response = requests.get(
        metadata["userinfo_endpoint"],
        headers={"authorization": f"Bearer {tokens['access_token']}"},
        timeout=10,
    )
    response.raise_for_status()
    print(json.dumps({"id_token": claims, "userinfo": response.json()}))


main()
