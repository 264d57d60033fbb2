"""The checksums of S3 match their specifications: each gives the published check value."""

from __future__ import annotations

import base64

import pytest

from pytest_ckpt.targets.objects.checksums import ALGORITHMS, checksum, encoded

# Check values for the digits 1 to 9, from the catalogue of parametrised CRC algorithms (RevEng) and the hashes'
# definitions.
DIGITS = b"123456789"
KNOWN = {
    "content-md5": "25f9e794323b453885f5181f1b624d0b",
    "x-amz-checksum-crc32": "cbf43926",
    "x-amz-checksum-crc32c": "e3069283",
    "x-amz-checksum-crc64nvme": "ae8b14860a799888",
    "x-amz-checksum-sha1": "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
    "x-amz-checksum-sha256": "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
}


def test_all_are_known():
    assert set(KNOWN) == set(ALGORITHMS)


@pytest.mark.parametrize("header", ALGORITHMS)
def test_a_checksum_is_that_of_its_definition_also_in_pieces(header):
    assert base64.b64decode(checksum(header, DIGITS)).hex() == KNOWN[header]
    running = ALGORITHMS[header]()
    for digit in DIGITS:
        running.update(bytes([digit]))
    assert encoded(running) == checksum(header, DIGITS)
