"""The signed statement about a run: an in-toto test result in a DSSE envelope. This module converts formats only.

Keys are used in `evidence.signing`. Sources: in-toto Statement v1 (github.com/in-toto/attestation,
spec/v1/statement.md), its predicate test-result v0.1 (spec/predicates/test-result.md), and DSSE 1.0
(github.com/secure-systems-lab/dsse, protocol.md and envelope.md).
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ckpt.support.strict_json import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

SUBJECTS = ("manifest.sha256", "report.json")
_CONFIGURATION = "plan.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """One signature of an envelope. ``keyid`` names the key; the signature does not protect this field."""

    keyid: str
    sig: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """The decoded content of a DSSE envelope."""

    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...]


def statement(document: Mapping[str, Any], sha256: Mapping[str, str]) -> bytes:
    """Return the serialised in-toto statement about a report.

    ``sha256`` is {file of the run directory: digest}. The field ``result`` is PASSED for a certified run with exit code
    0, and WARNED for a rehearsal with exit code 0. For all other runs, including incomplete runs, the field is FAILED.
    Requirements that were not run are not listed.
    """
    named = [(f"{v['id']} {v['subject']}", v["outcome"], v["severity"]) for v in document["requirements"]]
    predicate = {
        "result": _result(document),
        "configuration": [_resource(_CONFIGURATION, sha256)] if _CONFIGURATION in sha256 else [],
        "passedTests": [name for name, outcome, _ in named if outcome == "met"],
        "warnedTests": [
            name
            for name, outcome, severity in named
            if outcome == "waived" or (outcome == "failed" and severity == "advisory")
        ],
        "failedTests": [name for name, outcome, severity in named if (outcome, severity) == ("failed", "required")],
    }
    whole = {
        "_type": STATEMENT_TYPE,
        "subject": [_resource(name, sha256) for name in SUBJECTS],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that are signed: DSSE's pre-authentication encoding (PAE) of the payload and its type."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def envelope_bytes(envelope: Envelope) -> bytes:
    """Return an envelope as the bytes of its file."""
    plain = {
        "payload": base64.b64encode(envelope.payload).decode(),
        "payloadType": envelope.payload_type,
        "signatures": [{"keyid": s.keyid, "sig": base64.b64encode(s.sig).decode()} for s in envelope.signatures],
    }
    return (json.dumps(plain, indent=1) + "\n").encode()


def read_envelope(data: bytes) -> Envelope:
    """Return the content of an envelope. Raises ValueError with the reason if the envelope is invalid."""
    try:
        plain = parse(data)
        return Envelope(
            payload=_decoded(plain["payload"]),
            payload_type=str(plain["payloadType"]),
            signatures=tuple(
                Signature(keyid=str(s.get("keyid", "")), sig=_decoded(s["sig"])) for s in plain["signatures"]
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise ValueError(f"it is no DSSE envelope: {type(error).__name__}: {error}") from None


def _decoded(text: str) -> bytes:
    """Decode base64 in the standard or the URL-safe alphabet."""
    return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)


def _resource(name: str, sha256: Mapping[str, str]) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": sha256[name]}}


def _result(document: Mapping[str, Any]) -> str:
    if document["exit_code"] != 0:
        return "FAILED"
    return {"certified": "PASSED", "rehearsal": "WARNED"}.get(document["grade"], "FAILED")
