"""The pickle of a dictionary of tensors as torch.save writes it: protocol 2, tensors by reference to their storages.

Written opcode by opcode, since the functions that it names are torch's. Each object is numbered when it is written
first (BINPUT) and referred to by that number later (BINGET), as CPython's pickler does.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.sizing.models import Tensor

_STORAGES = {"float16": "torch HalfStorage", "float32": "torch FloatStorage", "uint8": "torch ByteStorage"}
_REBUILD, _HOOKS = "torch._utils _rebuild_tensor_v2", "collections OrderedDict"
# CPython's pickler writes a dictionary's items in lots of so many.
_ITEMS_AT_ONCE = 1000


def pickled(tensors: Sequence[Tensor]) -> bytes:
    """Return ``data.pkl`` for tensors of one dimension by their names; storages are numbered in their order."""
    out = _Pickle()
    out.write(pickle.PROTO + b"\x02" + pickle.EMPTY_DICT)
    out.number()
    if len(tensors) == 1:
        _item(out, 0, tensors[0])
        out.write(pickle.SETITEM)
    else:
        # A full lot is followed by another, even an empty one.
        for start in range(0, len(tensors) + (len(tensors) % _ITEMS_AT_ONCE == 0), _ITEMS_AT_ONCE):
            out.write(pickle.MARK)
            for number, tensor in enumerate(tensors[start : start + _ITEMS_AT_ONCE], start):
                _item(out, number, tensor)
            out.write(pickle.SETITEMS)
    out.write(pickle.STOP)
    return bytes(out.data)


def _item(out: _Pickle, number: int, tensor: Tensor) -> None:
    """Write a name and its tensor: _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)."""
    out.text(tensor.name)
    out.function(_REBUILD)
    out.write(pickle.MARK)
    out.write(pickle.MARK)
    out.text("storage", again=True)
    out.function(_STORAGES[tensor.dtype])
    out.text(str(number))
    out.text("cpu", again=True)
    out.integer(tensor.elements)
    out.write(pickle.TUPLE)
    out.number()
    out.write(pickle.BINPERSID)
    out.integer(0)
    for one in (tensor.elements, 1):
        out.integer(one)
        out.write(pickle.TUPLE1)
        out.number()
    out.write(pickle.NEWFALSE)
    out.function(_HOOKS)
    out.write(pickle.EMPTY_TUPLE + pickle.REDUCE)
    out.number()
    out.write(pickle.TUPLE)
    out.number()
    out.write(pickle.REDUCE)
    out.number()


class _Pickle:
    """Opcodes of protocol 2, and the numbers of what was written."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._count = 0
        self._known: dict[str, int] = {}

    def write(self, data: bytes) -> None:
        """Append opcodes as they are."""
        self.data += data

    def number(self) -> int:
        """Give the object that was written last the next number."""
        number, self._count = self._count, self._count + 1
        self._reference(pickle.BINPUT, pickle.LONG_BINPUT, number)
        return number

    def text(self, text: str, *, again: bool = False) -> None:
        """Write a text; with ``again`` it is one object in all its places."""
        if again and self._refer(text):
            return
        data = text.encode()
        self.write(pickle.BINUNICODE + len(data).to_bytes(4, "little") + data)
        number = self.number()
        if again:
            self._known[text] = number

    def function(self, name: str) -> None:
        """Write a function or class by its module and name, which a space parts."""
        if not self._refer(name):
            self.write(pickle.GLOBAL + name.replace(" ", "\n").encode() + b"\n")
            self._known[name] = self.number()

    def integer(self, value: int) -> None:
        """Write a number that is not negative."""
        if value < 1 << 8:
            self.write(pickle.BININT1 + value.to_bytes(1, "little"))
        elif value < 1 << 16:
            self.write(pickle.BININT2 + value.to_bytes(2, "little"))
        elif value < 1 << 31:
            self.write(pickle.BININT + value.to_bytes(4, "little"))
        else:
            size = value.bit_length() // 8 + 1
            self.write(pickle.LONG1 + bytes([size]) + value.to_bytes(size, "little"))

    def _refer(self, name: str) -> bool:
        number = self._known.get(name)
        if number is None:
            return False
        self._reference(pickle.BINGET, pickle.LONG_BINGET, number)
        return True

    def _reference(self, short: bytes, long: bytes, number: int) -> None:
        self.write(short + bytes([number]) if number < 1 << 8 else long + number.to_bytes(4, "little"))
