"""Network access of a run to its target, including the embedded server that a run may start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pytest_ckpt.facts.settings import EMBEDDED
from pytest_ckpt.facts.targets import Access, TargetSpec
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.references import load
from pytest_ckpt.support.user_files import read_user_bytes, user_path
from pytest_ckpt.targets.schemes import NO_ACCESS, spec_of, split

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings

ENDPOINT, CA_BUNDLE, UNVERSIONED = "--ckpt-endpoint", "AWS_CA_BUNDLE or SSL_CERT_FILE", "--ckpt-unversioned"
_BORNE_SHARE = 0.4
"""The fraction of the I/O timeout for which errors of an object store are tolerated; two minutes by default."""


@contextlib.contextmanager
def reached(settings: Settings, targets: Mapping[str, TargetSpec]) -> Iterator[Access]:
    """Yield the network access of a run to its target during a block.

    If the run starts the embedded server, the server ends with the block. ``targets`` are the known kinds of targets by
    scheme. Raises UsageError for options that do not fit the target.
    """
    if not settings.target:
        yield NO_ACCESS
        return
    spec = spec_of(settings.target, targets)
    if not spec.is_remote:
        for option, value in ((ENDPOINT, settings.endpoints), (UNVERSIONED, settings.unversioned)):
            if value:
                raise UsageError(
                    f"{option} is for object stores, and --ckpt-target {settings.target} is {spec.help}.",
                    f"Leave out {option}, or name a bucket: --ckpt-target=s3://bucket/prefix.",
                )
        yield NO_ACCESS
        return
    access = Access(
        endpoints=settings.endpoints,
        ca_bundle=_read_bundle(settings.ca_bundle) if settings.ca_bundle else "",
        part_bytes=settings.io_size_bytes,
        borne_seconds=_BORNE_SHARE * settings.io_timeout_seconds,
        unversioned=settings.unversioned,
    )
    if settings.endpoints != (EMBEDDED,):
        yield access
        return
    _check_embedded(settings, spec)
    with load(spec.serve)(split(settings.target)[1], access) as served:
        yield served


def _check_embedded(settings: Settings, spec: TargetSpec) -> None:
    if not spec.serve:
        raise UsageError(
            f"{ENDPOINT} {EMBEDDED}: the embedded server does not support {spec.scheme}://.",
            "Name the endpoint of a store.",
        )
    if settings.keep_files:
        raise UsageError(
            f"--ckpt-keep-files with {ENDPOINT} {EMBEDDED}: the data of that server are deleted with it, at the end of "
            "the run.",
            "Leave out --ckpt-keep-files, or name the endpoint of a store.",
        )


def _read_bundle(stated: str) -> str:
    """Return the absolute path of a file of TLS certificates. All hosts must have the file at this path.

    Raises UsageError if the file cannot be read or contains no TLS certificate.
    """
    path = user_path(stated, CA_BUNDLE)
    try:
        is_pem = b"-----BEGIN CERTIFICATE-----" in read_user_bytes(path)
    except OSError as error:
        raise UsageError(
            f"{CA_BUNDLE} {stated}: it cannot be read: {error.strerror}.", "Name a file of certificates (PEM)."
        ) from None
    if not is_pem:
        raise UsageError(f"{CA_BUNDLE} {stated}: it contains no certificate.", "Name a file of certificates (PEM).")
    return str(path)
