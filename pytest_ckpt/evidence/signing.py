"""Signs run directories and verifies signatures, with Ed25519 keys in PEM files.

Only this module imports ``cryptography`` (extra ``sign``).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from pytest_ckpt.evidence.attestation import (
    PAYLOAD_TYPE,
    SUBJECTS,
    Envelope,
    Signature,
    envelope_bytes,
    pre_authentication_encoding,
    statement,
)
from pytest_ckpt.evidence.manifest import ATTESTATION, MANIFEST, digests, file_digest
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.user_files import read_user_bytes, user_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PublicKey: TypeAlias = "Ed25519PublicKey"

_MAKE_KEY = (
    "Make a pair: openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out key.pub"
)
_NO_LIBRARY = "Signatures need the library cryptography, which is not installed."
_INSTALL = "pip install 'pytest-ckpt[sign]'"


@dataclass(frozen=True, kw_only=True, slots=True)
class Signer:
    """A private key that signs run directories.

    The key is read before the run, so that a bad key fails at the start.
    """

    key: Ed25519PrivateKey

    @property
    def pem(self) -> str:
        """The private key as PEM text. The process that signs a run directory receives the key in this form."""
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    def write(self, document: Mapping[str, Any], directory: Path) -> None:
        """Sign the report and the manifest of a run directory. Write the signature to ``attestation.dsse.json``."""
        sha256 = digests(directory) | {MANIFEST: file_digest(directory / MANIFEST)}
        assert set(SUBJECTS) <= set(sha256)
        payload = statement(document, sha256)
        signature = Signature(
            keyid=key_id(self.key.public_key()), sig=self.key.sign(pre_authentication_encoding(PAYLOAD_TYPE, payload))
        )
        envelope = Envelope(payload=payload, payload_type=PAYLOAD_TYPE, signatures=(signature,))
        (directory / ATTESTATION).write_bytes(envelope_bytes(envelope))


def read_private_key(file: Path, *, option: str) -> Signer:
    """Return a signer with the private key in a PEM file.

    ``option`` is the option that names the file, for messages. Raises UsageError with the reason if the key is
    unusable.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415
    except ImportError:
        raise UsageError(f"{option} {file}: {_NO_LIBRARY}", _INSTALL) from None
    data = _read(file, option)
    try:
        key = load_pem_private_key(data, password=None)
    except TypeError:
        raise UsageError(
            f"{option} {file}: the key is protected by a passphrase, and a run cannot prompt for it.",
            "Write it without one, readable only by the user of the run: openssl pkey -in key.pem -out plain.pem",
        ) from None
    except Exception as error:  # the library raises several types, including its own
        raise UsageError(f"{option} {file}: it is not a private key in PEM: {_first_line(error)}.", _MAKE_KEY) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{option} {file}: it is another kind of key; Ed25519 is expected.", _MAKE_KEY)
    return Signer(key=key)


def signer_of(pem: str) -> Signer:
    """Return a signer from the text of `Signer.pem`."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    return Signer(key=cast("Ed25519PrivateKey", load_pem_private_key(pem.encode(), password=None)))


def read_public_key(file: Path, *, option: str) -> Ed25519PublicKey:
    """Return the public key in a PEM file.

    ``option`` is the option that names the file, for messages. Raises UsageError with the reason if the key is
    unusable.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415
    except ImportError:
        raise UsageError(f"{option} {file}: {_NO_LIBRARY}", _INSTALL) from None
    data = _read(file, option)
    try:
        key = load_pem_public_key(data)
    except Exception as error:  # the library raises several types, including its own
        raise UsageError(
            f"{option} {file}: it is not a public key in PEM: {_first_line(error)}.",
            "Take it from the private one: openssl pkey -in key.pem -pubout -out key.pub",
        ) from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{option} {file}: it is another kind of key; Ed25519 is expected.", _MAKE_KEY)
    return key


def is_signed_with(signature: Signature, envelope: Envelope, key: Ed25519PublicKey) -> bool:
    """Whether a signature of the envelope was made with the private key that belongs to ``key``."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

    try:
        key.verify(signature.sig, pre_authentication_encoding(envelope.payload_type, envelope.payload))
    except InvalidSignature:
        return False
    return True


def key_id(key: Ed25519PublicKey) -> str:
    """Return the usual id of a key: the SHA-256 of the public key in DER (SubjectPublicKeyInfo)."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _read(file: Path, option: str) -> bytes:
    try:
        return read_user_bytes(user_path(file, option))
    except OSError as error:
        raise UsageError(f"{option} {file}: it cannot be read: {error.strerror}.", _MAKE_KEY) from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].split(". ")[0].rstrip(".")
