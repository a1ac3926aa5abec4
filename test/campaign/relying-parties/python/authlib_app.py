"""A relying party: Authlib in a Flask application, as its documentation has it.

Reads its registration from the environment, prints the address to sign in at, reads the address that the browser was
sent back to, and prints what it then knows.
"""

import json
import os
import secrets
import sys

from authlib.integrations.flask_client import OAuth
from flask import Flask

# The length of the state that Keycloak sends.
STATE_LENGTH = 175

app = Flask(__name__)
app.secret_key = secrets.token_bytes(32)
idp = OAuth(app).register(
    "idp",
    client_id=os.environ["CLIENT_ID"],
    client_secret=os.environ["CLIENT_SECRET"],
    server_metadata_url=os.environ["ISSUER"] + "/.well-known/openid-configuration",
    client_kwargs={"scope": "openid email profile", "code_challenge_method": "S256"},
)


@app.get("/login")
def login():
    state = secrets.token_urlsafe(STATE_LENGTH)[:STATE_LENGTH]
    return idp.authorize_redirect(os.environ["REDIRECT_URI"], state=state)


@app.get("/callback")
def callback():
    # Exchanges the code and verifies the id_token, including its nonce.
    token = idp.authorize_access_token()
    return {"id_token": token["userinfo"], "userinfo": idp.userinfo(token=token)}


def main():
    # Errors end the program instead of rendering a page.
    app.testing = True
    browser = app.test_client()
    print(browser.get("/login").location, flush=True)
    _, _, query = sys.stdin.readline().strip().partition("?")
    print(json.dumps(browser.get(f"/callback?{query}").json))


main()
