"""Pictures of another hand: what could run, or ask for something from elsewhere, is taken away or refused."""

from __future__ import annotations

import base64
import contextlib
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from pytest_ckpt.support.clean_pictures import MAXIMUM_BYTES, cleaned, cleaned_text

SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">{}</svg>'


def svg(inside, head=""):
    return (head + SVG.format(inside)).encode()


def png(**info):
    found = PngImagePlugin.PngInfo()
    for name, text in info.items():
        found.add_text(name, text)
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, "PNG", pnginfo=found)
    return file.getvalue()


def test_a_drawing_stays_as_it_is_and_is_the_same_when_it_is_cleaned_again():
    inside = (
        '<defs><linearGradient id="a"><stop offset="0" stop-color="red" /></linearGradient></defs>'
        '<g transform="scale(2)"><rect x="1" width="3" height="2" fill="url(#a)" /><text x="1">32 drives</text>'
        '<use href="#a" /></g>'
    )
    picture = cleaned(svg(inside))
    assert (picture.kind, picture.removed) == ("svg", 0)
    assert inside in picture.content.decode()
    assert cleaned(picture.content).content == picture.content
    assert cleaned_text(base64.b64encode(picture.content).decode()).content == picture.content


@pytest.mark.parametrize("inside", [
    "<script>alert(1)</script>",
    '<rect onload="alert(1)" width="1"/>',
    '<a href="https://example.com"><rect width="1"/></a>',
    '<image href="https://example.com/x.png"/>',
    '<use xlink:href="https://example.com/x.svg#a"/>',
    '<use href="data:image/svg+xml;base64,AAAA"/>',
    "<foreignObject><body xmlns='http://www.w3.org/1999/xhtml'/></foreignObject>",
    "<style>@import url(https://example.com/x.css)</style>",
    '<rect fill="url(https://example.com/#a)"/>',
    '<rect fill="url(#a) url(//example.com/b)"/>',
    '<rect fill="URL(\'https://example.com\')"/>',
    r'<rect fill="u\72l(https://example.com)"/>',
    '<rect style="background:url(https://example.com)"/>',
    '<animate attributeName="href" to="javascript:alert(1)"/>',
    '<set attributeName="onload" to="alert(1)"/>',
    '<x:script xmlns:x="http://www.w3.org/2000/svg">alert(1)</x:script>',
])  # fmt: skip
def test_what_runs_or_asks_for_something_is_taken_away(inside):
    picture = cleaned(svg(inside))
    assert picture.removed >= 1
    text = picture.content.decode().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(
        r"script|onload|https?:|//|import|data:|url\(|\\|style|foreign|animate|<set", text, re.IGNORECASE
    )


@pytest.mark.parametrize("data", [
    b"", b"GIF89a", b"\xff\xfe", b"<html/>", svg("<g>"),
    b"<svg viewBox='0 0 1 1'>" + b"<g>" * 99 + b"</g>" * 99 + b"</svg>",
    svg("", '<!DOCTYPE svg [<!ENTITY a "aaaa">]>'), svg("<g/>" * 6000), svg(" " * MAXIMUM_BYTES),
    b'<svg xmlns="http://www.w3.org/2000/svg"/>', png()[:-5], png().replace(b"IDAT", b"IDAX"), b"\x89PNG\r\n\x1a\n",
])  # fmt: skip
def test_what_is_no_picture_is_refused_in_a_sentence(data):
    with pytest.raises(ValueError, match=r"^it "):
        cleaned(data)


def test_of_a_png_the_pixels_are_left():
    picture = cleaned(png(Comment="https://example.com", Author="someone") + b"<script>")
    assert picture.removed == 3
    assert b"example.com" not in picture.content
    assert b"script" not in picture.content
    assert Image.open(io.BytesIO(picture.content)).getpixel((3, 3)) == (255, 0, 0)


@given(st.binary(max_size=400) | st.text(max_size=200).map(svg))
def test_nothing_ends_in_an_error_of_another_kind(data):
    with contextlib.suppress(ValueError):
        cleaned(data)


def test_what_is_not_base64_is_refused():
    with pytest.raises(ValueError, match="base64"):
        cleaned_text("§")
