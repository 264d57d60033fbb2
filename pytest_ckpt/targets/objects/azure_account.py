"""The account of Azure, from where the tools of Azure look; its key stays in this process."""

from __future__ import annotations

import ipaddress
import os
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.azure_signing import authorization
from pytest_ckpt.targets.objects.credentials import NoCredentialsError
from pytest_ckpt.targets.objects.dialect import Endpoint, PathOfKey, endpoint_of
from pytest_ckpt.targets.objects.errors import of_credentials
from pytest_ckpt.targets.objects.keys import BucketPrefix

_VERSION = "2021-12-02"
_LACKS = (
    "neither AZURE_STORAGE_CONNECTION_STRING nor AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or "
    "AZURE_STORAGE_SAS_TOKEN is set"
)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Account:
    """Who asks: an account with its key, in base64, or with a token (SAS); ``endpoint`` empty: Azure's own."""

    name: str
    key: str = ""
    token: str = ""
    endpoint: str = ""


def find_account(environment: Mapping[str, str]) -> Account:
    """Return who asks. Raises NoCredentialsError."""
    pairs = (part.partition("=") for part in environment.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";"))
    words = {name.strip(): value.strip() for name, _, value in pairs}
    found = environment.get
    name = found("AZURE_STORAGE_ACCOUNT") or found("AZURE_STORAGE_ACCOUNT_NAME") or words.get("AccountName", "")
    key = found("AZURE_STORAGE_KEY") or found("AZURE_STORAGE_ACCOUNT_KEY") or words.get("AccountKey", "")
    token = found("AZURE_STORAGE_SAS_TOKEN") or words.get("SharedAccessSignature", "")
    if not name or not (key or token):
        raise NoCredentialsError(_LACKS)
    url = urllib.parse.urlsplit(words.get("BlobEndpoint", ""))
    endpoint = f"{url.scheme}://{url.netloc}" if url.netloc else ""
    return Account(name=name, key=key, token=token.lstrip("?"), endpoint=endpoint)


class DialectOfAzure(PathOfKey):
    """Requests of one account, signed by its key, or sent with its token. Raises StoreError where there is neither."""

    region = ""

    def __init__(self, place: BucketPrefix, access: Access) -> None:
        try:
            self._account = find_account(os.environ)
        except NoCredentialsError as error:
            raise of_credentials(str(error), place.url, "NoAccount") from None
        own = f"https://{self._account.name}.blob.core.windows.net"
        urls = access.endpoints or (self._account.endpoint or own,)
        self.endpoints = tuple(self._endpoint(url) for url in urls)

    def signed(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: memoryview | bytes
    ) -> tuple[str, dict[str, str]]:
        """Sign a request; no body is part of that."""
        sent = {
            **headers,
            "x-ms-version": _VERSION,
            "x-ms-date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
        }
        if not self._account.key:
            return "&".join(filter(None, (query, self._account.token))), sent
        try:
            sent["Authorization"] = authorization(
                method, path, query, sent, len(body), account=self._account.name, key=self._account.key
            )
        except ValueError:
            raise NoCredentialsError("AZURE_STORAGE_KEY is no key: it is not base64") from None
        return query, sent

    def hidden(self) -> tuple[str, ...]:
        """Return the key and the token, and what of it is a signature."""
        signature = dict(urllib.parse.parse_qsl(self._account.token)).get("sig", "")
        return self._account.key, self._account.token, signature

    def _endpoint(self, url: str) -> Endpoint:
        """Return where requests go: a host without a name has many accounts, and the name of one is in its paths."""
        return endpoint_of(url, f"/{self._account.name}" if _is_of_many(url) else "")


def _is_of_many(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
