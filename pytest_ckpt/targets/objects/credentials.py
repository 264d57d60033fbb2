"""Credentials, region and endpoint, from where the SDKs of AWS look; what is found stays in this process.

The environment is read here. Profile files and roles of a machine are left to botocore, which takes 40 MB of memory and
is imported only where the environment has no keys.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_ckpt.facts.targets import Access

ANY_REGION = "us-east-1"
"""That of a store without regions: it is part of what is signed."""


class NoCredentialsError(Exception):
    """Neither the environment nor a profile nor a role has keys; or what a profile says cannot be used."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Keys:
    """What signs a request; it is shown nowhere."""

    access_key: str
    secret_key: str
    token: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Identity:
    """Who asks, where: ``keys`` returns those of now, since those of a role end. ``endpoint`` empty: AWS's own."""

    keys: Callable[[], Keys]
    region: str
    endpoint: str


def find_identity(access: Access) -> Identity:
    """Return who asks. Raises NoCredentialsError."""
    if access.embedded:
        # That server asks nobody who he is.
        own = Keys(access_key="embedded", secret_key="embedded")
        return Identity(keys=lambda: own, region=ANY_REGION, endpoint=access.endpoints[0])
    environment = os.environ
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    endpoint = access.endpoints[0] if access.endpoints else endpoint.rstrip("/")
    access_key, secret_key = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret_key:
        given = Keys(access_key=access_key, secret_key=secret_key, token=environment.get("AWS_SESSION_TOKEN", ""))
        return Identity(keys=lambda: given, region=region or ANY_REGION, endpoint=endpoint)
    return _of_library(region, endpoint)


def _of_library(region: str, endpoint: str) -> Identity:
    if importlib.util.find_spec("botocore") is None:
        raise NoCredentialsError("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set")
    import botocore.exceptions  # noqa: PLC0415 - where nothing else has keys
    import botocore.session  # noqa: PLC0415

    try:
        session = botocore.session.Session()
        found: Any = session.get_credentials()
        if found is None:
            raise NoCredentialsError("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and no profile has keys")
        region = region or session.get_config_variable("region") or ANY_REGION
        endpoint = endpoint or str(session.get_scoped_config().get("endpoint_url", "")).rstrip("/")
    except botocore.exceptions.BotoCoreError as error:
        raise NoCredentialsError(str(error)) from None

    def keys() -> Keys:
        try:
            now = found.get_frozen_credentials()
        except botocore.exceptions.BotoCoreError as error:
            raise NoCredentialsError(str(error)) from None
        return Keys(access_key=now.access_key, secret_key=now.secret_key, token=now.token or "")

    return Identity(keys=keys, region=region, endpoint=endpoint)
