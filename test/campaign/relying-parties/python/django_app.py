"""A relying party: mozilla-django-oidc in a Django application, as its documentation has it.

Reads its registration from the environment, listens at PORT, and shows the identity that it received at `/`.
"""

import os
import secrets
from wsgiref.simple_server import make_server

import django
from django.conf import settings
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import include, path

ISSUER = os.environ["ISSUER"]

settings.configure(
    SECRET_KEY=secrets.token_urlsafe(),
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "mozilla_django_oidc"],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        f"{__name__}.ReasonMiddleware",
    ],
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    AUTHENTICATION_BACKENDS=[f"{__name__}.Backend"],
    LOGIN_REDIRECT_URL="/",
    OIDC_RP_CLIENT_ID=os.environ["CLIENT_ID"],
    OIDC_RP_CLIENT_SECRET=os.environ["CLIENT_SECRET"],
    OIDC_RP_SCOPES="openid email profile",
    OIDC_RP_SIGN_ALGO=os.environ["SIGN_ALGO"],
    OIDC_OP_AUTHORIZATION_ENDPOINT=f"{ISSUER}/authorize",
    OIDC_OP_TOKEN_ENDPOINT=f"{ISSUER}/token",
    OIDC_OP_USER_ENDPOINT=f"{ISSUER}/userinfo",
    OIDC_OP_JWKS_ENDPOINT=f"{ISSUER}/.well-known/jwks.json",
    OIDC_USE_PKCE=True,
)
django.setup()

# A model of Django, so it can be imported only now.
from mozilla_django_oidc.auth import OIDCAuthenticationBackend  # noqa: E402


class ReasonMiddleware:
    """Answers with the reason of a refusal, which Django only logs."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        return self.get_response(request)

    def process_exception(self, request, exception):
        return HttpResponse(f"{type(exception).__name__}: {exception}", status=400)


class Backend(OIDCAuthenticationBackend):
    def verify_claims(self, claims):
        return "email" in claims

    def get_userinfo(self, access_token, id_token, payload):
        userinfo = super().get_userinfo(access_token, id_token, payload)
        self.request.session["identity"] = {"claims": payload, "userinfo": userinfo}
        return userinfo


def identity(request):
    if not request.user.is_authenticated:
        return redirect("oidc_authentication_init")
    return JsonResponse(request.session["identity"])


urlpatterns = [path("", identity), path("oidc/", include("mozilla_django_oidc.urls"))]


def main():
    call_command("migrate", verbosity=0)
    with make_server("127.0.0.1", int(os.environ["PORT"]), get_wsgi_application()) as server:
        print(f"listening at http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


main()
