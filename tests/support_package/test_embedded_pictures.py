"""Pictures that users supply: PNG and JPEG are accepted; other formats are refused with a reason."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image

from pytest_ckpt.support.embedded_pictures import MAXIMUM_BYTES, data_address, media_type


def drawn(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_a_png_and_a_jpeg_are_accepted(kind: str) -> None:
    content = drawn(kind)
    assert media_type(content) == f"image/{kind}"
    media, _, text = data_address(base64.b64encode(content).decode()).partition(";base64,")
    assert media == f"data:image/{kind}"
    assert base64.b64decode(text) == content


@pytest.mark.parametrize(("content", "reason"), [
    (b"", "not a PNG or JPEG"),
    (b"GIF89a", "not a PNG or JPEG"),
    (b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"/>', "SVG is not supported"),
    (b'<?xml version="1.0"?><svg onload="alert(1)"/>', "SVG is not supported"),
    (drawn("png")[:-5], "cut off"),
    (drawn("jpeg")[:-2], "cut off"),
    (drawn("png") + bytes(MAXIMUM_BYTES), "the maximum is 262,144"),
])  # fmt: skip
def test_everything_else_is_refused_with_its_reason(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        media_type(content)
    with pytest.raises(ValueError, match=reason):
        data_address(base64.b64encode(content).decode())


@pytest.mark.parametrize("text", ["§", "javascript:alert(1)", 'iVBORw0KGgo=" onerror="alert(1)'])
def test_text_that_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"base64|ASCII|padding"):
        data_address(text)
