"""Who signed the statements of run directories: one entry for each signer, known or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.evidence.attestation import read_envelope
from pytest_ckpt.evidence.manifest import ATTESTATION
from pytest_ckpt.support.strict_json import read

if TYPE_CHECKING:
    from pytest_ckpt.evidence.signing import PublicKey


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownKey:
    """A public key that the reader had before: ``name`` is its file, as it was given."""

    name: str
    key: PublicKey


@dataclass(frozen=True, kw_only=True, slots=True)
class Signer:
    """The signer of some directories, or a key without signatures.

    ``key`` is the file of a known key, empty for an unknown one; ``key_id`` is the SHA-256 of the key (for an unknown
    key, as the envelope claims, which is not protected); ``signed`` names the directories.
    """

    key_id: str
    key: str
    signed: tuple[str, ...]


def signers(places: Mapping[str, Path], keys: Sequence[KnownKey]) -> tuple[Signer, ...]:
    """Return the signers of directories, by the names of the directories: known keys first, in their order.

    Whether the signed content matches the directory is a separate check.
    """
    from pytest_ckpt.evidence.signing import is_made_by, key_id  # noqa: PLC0415 - of a library that may lack

    known: dict[str, KnownKey] = {}
    for one in keys:
        known.setdefault(key_id(one.key), one)
    signed: dict[str, list[str]] = {identity: [] for identity in known}
    for name, directory in places.items():
        file = directory / ATTESTATION
        if file.is_symlink():
            continue
        try:
            envelope = read_envelope(read(file))
        except (OSError, ValueError):
            continue
        for signature in envelope.signatures:
            makers = (k for k, one in known.items() if is_made_by(signature, envelope, one.key))
            signed.setdefault(next(makers, f"?{signature.keyid:.64}"), []).append(name)
    return tuple(
        Signer(
            key_id=identity.removeprefix("?"),
            key=known[identity].name if identity in known else "",
            signed=tuple(dict.fromkeys(names)),
        )
        for identity, names in signed.items()
    )
