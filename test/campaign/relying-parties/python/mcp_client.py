"""Connects to an MCP server with the client of the MCP SDK, and calls its tools.

Reads its configuration from the environment. Prints the address at which a person has to sign in, and reads the one that
the person returns to, once for each authorization. Prints the result of the tools as JSON at the end.
"""

import json
import os
import sys
from urllib.parse import parse_qs, urlparse

import anyio
import httpx2
from mcp import ClientSession
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

RESOURCE = os.environ["RESOURCE"]
ISSUER = os.environ["ISSUER"]
CALLBACK = os.environ["CALLBACK"]


class Memory:
    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def show(url):
    print(url, flush=True)


async def wait():
    query = parse_qs(urlparse(sys.stdin.readline().strip()).query)
    one = lambda name: query.get(name, [None])[0]
    return AuthorizationCodeResult(code=one("code"), state=one("state"), iss=one("iss"))


def for_person(**more):
    metadata = OAuthClientMetadata(
        client_name="Notes client", redirect_uris=[CALLBACK], token_endpoint_auth_method="none"
    )
    return OAuthClientProvider(RESOURCE, metadata, Memory(), show, wait, **more)


def with_key():
    parameters = SignedJWTParameters(
        issuer=os.environ["CLIENT_ID"],
        subject=os.environ["CLIENT_ID"],
        signing_key=os.environ["KEY"],
        signing_algorithm="EdDSA",
    )
    return PrivateKeyJWTOAuthProvider(
        RESOURCE,
        Memory(),
        os.environ["CLIENT_ID"],
        parameters.create_assertion_provider(),
        scope="notes:read notes:write",
        issuer=ISSUER,
    )


def with_secret():
    return ClientCredentialsOAuthProvider(
        RESOURCE,
        Memory(),
        os.environ["CLIENT_ID"],
        os.environ["CLIENT_SECRET"],
        scope="notes:read notes:write",
        issuer=ISSUER,
    )


PROVIDERS = {
    "document": lambda: for_person(client_metadata_url=os.environ["CLIENT_METADATA_URL"]),
    "registration": for_person,
    "token": for_person,
    "secret": with_secret,
    "key": with_key,
}


async def send_token(request):
    """The SDK knows no initial access token, but lets the application see its requests."""
    token = os.environ.get("REGISTRATION_TOKEN")
    if token and str(request.url) == f"{ISSUER}/register":
        request.headers["authorization"] = f"Bearer {token}"


async def main():
    auth = PROVIDERS[sys.argv[1]]()
    hooks = {"request": [send_token]}
    async with httpx2.AsyncClient(auth=auth, event_hooks=hooks, trust_env=False) as http:
        async with streamable_http_client(RESOURCE, http_client=http) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                known = await session.call_tool("whoami", {})
                added = await session.call_tool("add_note", {"text": "Milk"})
                print(json.dumps([json.loads(result.content[0].text) for result in (known, added)]), flush=True)


anyio.run(main)
