"""Whether the signed statement of a run directory matches the directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.evidence.attestation import PAYLOAD_TYPE, envelope_bytes, read_envelope, statement
from pytest_ckpt.evidence.manifest import ATTESTATION, MANIFEST, digests, file_digest
from pytest_ckpt.evidence.verification import Examination
from pytest_ckpt.support.strict_json import parse, read

if TYPE_CHECKING:
    from pytest_ckpt.evidence.signing import PublicKey


SIGN_OPTION = "--ckpt-sign"


def check_signature(directory: Path, report: Mapping[str, Any] | None, keys: Sequence[PublicKey]) -> Examination:
    """Check the envelope's form, its statement, and with ``keys`` that the owner of one of them signed it."""
    file = directory / ATTESTATION
    if file.is_symlink():
        # A manifest does not list it, so this is the only place that can report it.
        description = f"{ATTESTATION} is a link"
        return Examination(
            name="signature", outcome="broken", description=description, details=(f"changed: {ATTESTATION}",)
        )
    if not file.exists():
        return unsigned(report, keys)
    try:
        data = read(file)
        envelope = read_envelope(data)
    except (OSError, ValueError) as error:
        return Examination(
            name="signature", outcome="broken", description=f"{ATTESTATION} cannot be read", details=(str(error),)
        )
    faults = []
    if envelope_bytes(envelope) != data:
        faults.append(f"{ATTESTATION} is not byte for byte as it was written")
    if envelope.payload_type != PAYLOAD_TYPE:
        faults.append(f"the payload type is {envelope.payload_type!r}, not {PAYLOAD_TYPE!r}")
    sha256 = digests(directory) | {MANIFEST: file_digest(directory / MANIFEST)}
    if report is None or "report.json" not in sha256:
        faults.append("there is no report that can be read to hold the statement against")
    elif envelope.payload != statement(report, sha256):
        faults.append(f"what was signed is not what the directory holds ({_stated(envelope.payload, sha256)})")
    if keys:
        from pytest_ckpt.evidence.signing import is_made_by, key_id  # noqa: PLC0415

        known = [(s, key) for s in envelope.signatures for key in keys if is_made_by(s, envelope, key)]
        if not known:
            faults.append("no signature in it was made with a private key that belongs to --key")
        elif any(s.keyid != key_id(key) for s, key in known):
            faults.append("the key's id in it, which nothing protects, was changed")
    if faults:
        return Examination(
            name="signature", outcome="broken", description="the signature does not hold", details=tuple(faults)
        )
    if not keys:
        description = f"{ATTESTATION} fits the directory; who signed it cannot be known without --key"
        return Examination(name="signature", outcome="not checked", description=description)
    return Examination(
        name="signature", outcome="holds", description="report.json and manifest were signed with a key of --key"
    )


def unsigned(report: Mapping[str, Any] | None, keys: Sequence[PublicKey]) -> Examination:
    """Return the finding for a directory without a signature: broken if it had one, or if one is expected."""
    was_signed = report is not None and any(
        s["option"] == SIGN_OPTION and s.get("value") for s in report.get("settings") or ()
    )
    if was_signed or keys:
        description = f"{ATTESTATION} is not there" + (": the run was signed, so it was removed" if was_signed else "")
        return Examination(
            name="signature", outcome="broken", description=description, details=(f"removed: {ATTESTATION}",)
        )
    description = (
        "the run was not signed: consistent tampering cannot be detected without a signature "
        f"({SIGN_OPTION} signs a run)"
    )
    return Examination(name="signature", outcome="not checked", description=description)


def _stated(payload: bytes, sha256: Mapping[str, str]) -> str:
    """Name the files whose digests differ from the signed ones."""
    try:
        signed = {s["name"]: s["digest"]["sha256"] for s in parse(payload)["subject"]}
    except (ValueError, KeyError, TypeError):
        return "it is no statement"
    other = [name for name, digest in signed.items() if sha256.get(name) != digest]
    return f"changed since: {', '.join(other)}" if other else "other results are stated"
