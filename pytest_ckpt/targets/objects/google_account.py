"""Who asks Google Cloud Storage, from where Google's own libraries look; tokens stay in this process.

Its library google-auth (extra ``gcs``) finds them: a file that GOOGLE_APPLICATION_CREDENTIALS names, the login of
gcloud, the service account of a machine. Where STORAGE_EMULATOR_HOST is set nobody signs anything, as with those.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Mapping

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.credentials import NoCredentialsError
from pytest_ckpt.targets.objects.dialect import endpoint_of
from pytest_ckpt.targets.objects.errors import of_credentials
from pytest_ckpt.targets.objects.keys import BucketPrefix

EMULATOR = "STORAGE_EMULATOR_HOST"
_OWN = "https://storage.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class DialectOfGoogle:
    """Requests with a token of OAuth 2.0. Raises StoreError where nothing has one."""

    region = ""

    def __init__(self, place: BucketPrefix, access: Access) -> None:
        emulator = os.environ.get(EMULATOR, "").rstrip("/")
        if emulator and "://" not in emulator:
            emulator = f"http://{emulator}"
        self._token = ""
        try:
            self._sign: Callable[[str], dict[str, str]] = (lambda _url: {}) if emulator else _signer()
        except NoCredentialsError as error:
            raise of_credentials(str(error), place.url, "NoGoogleCredentials") from None
        urls = access.endpoints or (emulator or _OWN,)
        self.endpoints = tuple(endpoint_of(url, "") for url in urls)

    def path(self, root: str, key: str) -> str:
        """Return the path of a request: a name of an object is one part of it, slashes and all, encoded already."""
        return f"{root}/{key}"

    def signed(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: memoryview | bytes
    ) -> tuple[str, dict[str, str]]:
        """Add the token of now."""
        del method, body
        added = self._sign(f"https://{headers.get('host', '')}{path}")
        self._token = added.get("authorization", "").removeprefix("Bearer ")
        return query, {**headers, **added}

    def hidden(self) -> tuple[str, ...]:
        """Return the last token."""
        return (self._token,)


def _signer() -> Callable[[str], dict[str, str]]:
    """Return what gives a request's URL the headers by which it says who asks. Raises NoCredentialsError."""
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.auth") is None:
        raise NoCredentialsError("google-auth is not installed")
    import google.auth  # noqa: PLC0415 - where it is asked for
    import google.auth.exceptions  # noqa: PLC0415
    import google.auth.transport.requests  # noqa: PLC0415

    try:
        found, _ = google.auth.default(scopes=[_SCOPE])
    except google.auth.exceptions.GoogleAuthError as error:
        raise NoCredentialsError(_first_sentence(error)) from None
    request, lock = google.auth.transport.requests.Request(), threading.Lock()

    def sign(url: str) -> dict[str, str]:
        headers: dict[str, str] = {}
        try:
            with lock:
                found.before_request(request, "GET", url, headers)  # type: ignore[no-untyped-call]
        except google.auth.exceptions.GoogleAuthError as error:
            raise NoCredentialsError(_first_sentence(error)) from None
        return headers

    return sign


def _first_sentence(error: Exception) -> str:
    return str(error.args[0] if error.args else error).partition(". ")[0].rstrip(".")
