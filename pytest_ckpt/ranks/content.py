"""The content of checkpoints: unique, incompressible bytes, reproducible for any offset and generated at memory speed.

A page has 4 KiB. Its content is a row of a random block, XORed with one 64-bit word. The word encodes the page's place
(checkpoint, rank, tensor, page) and can be decoded. Therefore all pages of a run differ. Data are verified without a
stored copy, and the origin of a misplaced page is known.

A block is used for at most one GiB of content. This limits the repeated rows that storage with knowledge of this scheme
could exploit. The first two words of a row are the same in all blocks, so a page's place can be decoded from these two
words.

If saves are compressed, pages compress like the tensors of a training state: numbers with random mantissas and few
different exponents. In the first 8 bytes of a page, the 64-bit word changes complete numbers. In the rest of the page,
it changes only mantissas. In this module "exponent" means the highest byte of a number, which includes the sign.

The reference for compression is a small transformer (11 M parameters), trained on text with AdamW. In blocks of 1 MiB,
zstd 1 compressed its bf16 weights to 0.77 of their size, and its fp32 master weights and moments to 0.91 to 0.93. LZ4
did not compress any of them. Exponents are drawn from a normal distribution that matches both zstd ratios within 0.03.
Moments of unused rows compress almost completely and are omitted.

A page that differs from the written page is reported as flipped, torn, zeros, stale, misplaced or foreign.

The CRC-32 of content is computed without generating the content, because CRC is linear. L(x) is the CRC register after
the bytes x, if the register starts at zero and nothing is inverted. L(a XOR b) = L(a) XOR L(b). L(a followed by b) =
shift(L(a), length of b) XOR L(b), where shift is also linear. Therefore L of a page is L of its row, XORed with a
function of its 64-bit word. The values of pages are joined in a tree. This method is about twenty times as fast as
zlib, with the same result.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import threading
import zlib
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_ckpt.ranks.engines.stream.buffers import Buffers
from pytest_ckpt.sizing.content_places import CHECKPOINT_BITS, RANK_BITS, USUAL_TENSOR_BITS, WITHIN_RANK_BITS
from pytest_ckpt.sizing.models import ITEM_BYTES
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Sums = NDArray[np.uint32]
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_ckpt.facts.proofs import FaultKind
    from pytest_ckpt.sizing.models import Dtype

    Bytes = NDArray[np.uint8]
    Words = NDArray[np.uint64]


_BITS = np.array([1 << bit for bit in range(32)], dtype=np.uint32)


class WordChecksums:
    """Tables of the change of a page's CRC when one 64-bit word is XORed into all words of the page.

    ``mask`` has an element for each word of the page. Only bits that are set in ``mask`` are XORed.
    """

    def __init__(self, mask: NDArray[np.uint64]) -> None:
        self._mask = mask

    @functools.cached_property
    def tables(self) -> Sums:
        """One table for each byte of the 64-bit word: {value of the byte (0 to 255): change of the CRC}."""
        return _tables([linear((self._mask & np.uint64(1 << bit)).tobytes()) for bit in range(64)])


class PageChecksums:
    """Computes checksums of a block's pages. A page is a row of the block, XORed with the page's 64-bit word.

    ``rows`` are the rows of the block, in words of 8 bytes. The size of a page is a power of two.
    """

    def __init__(self, rows: NDArray[np.uint64], words: WordChecksums) -> None:
        self._page_bytes = rows.shape[1] * 8
        zeros = of_zeros(self._page_bytes)
        self._rows = np.array([zlib.crc32(row) ^ zeros for row in rows], dtype=np.uint32)
        self._words = words.tables

    def of_pages(self, first_row: int, words: NDArray[np.uint64]) -> int:
        """Return L (see the module) of consecutive pages. ``words`` are the 64-bit words of the pages.

        The first page uses row ``first_row`` of the block. After the last row, the rows repeat.
        """
        sums = _apply(self._words, words)
        sums ^= np.resize(np.roll(self._rows, -first_row), len(words))
        # Leading zero bytes leave the sum unchanged, so the count may be padded to a power of two.
        missing = (1 << (len(sums) - 1).bit_length()) - len(sums)
        sums = np.concatenate([np.zeros(missing, dtype=np.uint32), sums])
        length = self._page_bytes
        while len(sums) > 1:
            sums = _apply(_shift_tables(length), sums[0::2]) ^ sums[1::2]
            length *= 2
        return int(sums[0])


def linear(data: bytes) -> int:
    """Return L (see the module) of ``data``."""
    return zlib.crc32(data) ^ of_zeros(len(data))


def join(first: int, second: int, second_bytes: int) -> int:
    """Return L (see the module) of two consecutive byte ranges.

    ``first`` and ``second`` are L of each range. ``second_bytes`` is the length of the second range.
    """
    return shift(first, second_bytes) ^ second if first else second


@functools.lru_cache(maxsize=4096)
def of_zeros(count: int) -> int:
    """Return the CRC-32 of ``count`` zero bytes."""
    return shift(0xFFFFFFFF, count) ^ 0xFFFFFFFF


def shift(register: int, count: int) -> int:
    """Return the CRC register after ``count`` further zero bytes. ``register`` is the CRC register before them."""
    return int(_apply(_tables_of_shift(count), np.array([register], dtype=np.uint32))[0])


@functools.lru_cache(maxsize=1024)
def _tables_of_shift(count: int) -> Sums:
    """Return the tables of the shift by ``count`` zero bytes (see the module).

    The tables are cached, because few different counts occur in a layout.
    """
    values = _BITS
    length = 1
    while count:
        if count & 1:
            values = _apply(_shift_tables(length), values)
        count >>= 1
        length *= 2
    return _tables(values.tolist())


@functools.cache
def _shift_tables(length: int) -> Sums:
    """Return the tables of the shift by ``length`` zero bytes. ``length`` is a power of two."""
    if length == 1:
        # Shift one zero byte into the register, as zlib does; its inversions cancel out.
        moved = [zlib.crc32(b"\0", int(bit) ^ 0xFFFFFFFF) ^ 0xFFFFFFFF for bit in _BITS]
        return _tables(moved)
    half = _shift_tables(length // 2)
    return _tables(_apply(half, _apply(half, _BITS)).tolist())


def _tables(basis: list[int]) -> Sums:
    """Return the tables of the linear function that maps bit number i of its argument to ``basis[i]``.

    There is one table of 256 values for each byte of the argument.
    """
    tables = np.zeros((len(basis) // 8, 256), dtype=np.uint32)
    for number, value in enumerate(basis):
        byte, bit = divmod(number, 8)
        tables[byte, 1 << bit : 2 << bit] = tables[byte, : 1 << bit] ^ np.uint32(value)
    return tables


def _apply(tables: Sums, values: NDArray[np.uint32] | NDArray[np.uint64]) -> Sums:
    """Return the results of a linear function for the arguments ``values``.

    ``tables`` define the function (see `_tables`).
    """
    digits = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    # `take` costs half as much as an index.
    out: Sums = tables[0].take(digits[:, 0])
    for byte in range(1, len(tables)):
        out ^= tables[byte].take(digits[:, byte])
    return out


PAGE_BYTES = 4096
BLOCK_PAGES = 256
_BLOCK_BYTES = BLOCK_PAGES * PAGE_BYTES
_PART_PAGES = 32
_LANES = PAGE_BYTES // 8
_ALL_BITS = np.uint64((1 << 64) - 1)
_CHECKSUM_PAGES = 1 << 14  # the values of one step fit in the processor's cache
# One block is used for 64 MiB of each of 16 consecutive tensors: a GiB at most.
_TENSOR_SHIFT, _PAGE_SHIFT = 4, 14
# A tensor of up to 256 MiB uses at most this many blocks, repeatedly. For a larger tensor, each pass generates the
# blocks again.
_BLOCKS_HELD = 4
# The first word of a page gives its place; the second word confirms it.
_COMMON = 2

# The finalizer of SplitMix64 (Steele, Lea, Flood 2014) and the inverses of its two odd factors modulo 2^64.
_FACTOR_1, _FACTOR_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_INVERSE_1, _INVERSE_2 = pow(_FACTOR_1, -1, 1 << 64), pow(_FACTOR_2, -1, 1 << 64)
_STEPS = tuple((np.uint64(shift), np.uint64(factor)) for shift, factor in ((30, _FACTOR_1), (27, _FACTOR_2)))
_LAST_SHIFT = np.uint64(31)

_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

AS_NUMBERS = "numbers of few exponents, such that zstd 1 stores 0.77 of 2-byte and 0.92 of 4-byte numbers"
"""A description of the content; the ratio was measured on one state and may differ for other jobs."""

_MIDDLE, _SPREAD = 60, 1.25
# Maps a random byte to the exponent that replaces it.
_EXPONENTS = np.array(
    [round(NormalDist(_MIDDLE, _SPREAD).inv_cdf((byte + 0.5) / 256)) for byte in range(256)], dtype=np.uint8
)

# Storage damages sectors or bits. A page with at most this many differing bytes has flipped bits; a page that is
# correct up to a multiple of a sector and wrong after it is torn.
_FLIPPED_BYTES = 16
_SECTOR_BYTES = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorKey:
    """The identity of a tensor: checkpoint number (from 1), rank, and the tensor's number on that rank (from 0)."""

    checkpoint: int
    rank: int
    tensor: int

    def __post_init__(self) -> None:
        """Raise ValueError if a number is too large for the 64-bit word of a page."""
        limits = (
            ("checkpoint", self.checkpoint, CHECKPOINT_BITS),
            ("rank", self.rank, RANK_BITS),
            ("tensor", self.tensor, WITHIN_RANK_BITS),
        )
        for name, value, bits in limits:
            if not 0 <= value < 1 << bits:
                raise ValueError(f"{name} {value} is outside 0..{(1 << bits) - 1}")


def content_seed(seed: int, subject: str) -> int:
    """Return a 64-bit seed for one subject's content, so that the subjects of a run have different pages."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{subject}".encode()).digest()[:8], "little")


class _Kind:
    """The properties of all pages of one number type, such as the bits that a page's 64-bit word may change."""

    def __init__(self, dtype: Dtype | None, mask: Words) -> None:
        self.dtype, self.mask = dtype, mask if dtype is None else mantissas(mask, dtype)
        # A mask is applied only if bits are left out, because it costs another pass.
        self.is_masked = not bool(np.all((self.mask == 0) | (self.mask == _ALL_BITS)))
        self.lanes = int(np.count_nonzero(self.mask))
        self.checksums = WordChecksums(self.mask)

    def of(self, block: Words) -> Words:
        """Convert a block of random bits to numbers of this type and return the block."""
        return block if self.dtype is None else as_numbers(block, self.dtype)


class _Rows:
    """A random block, converted to numbers of one type. Each row is the basis of pages."""

    def __init__(self, kind: _Kind, block: Words) -> None:
        self.kind, self.block = kind, block
        self._checksums: PageChecksums | None = None

    @property
    def checksums(self) -> PageChecksums:
        """The checksums of the rows, for the CRC of pages."""
        if self._checksums is None:
            self._checksums = PageChecksums(self.block, self.kind.checksums)
        return self._checksums


class _Run(NamedTuple):
    """Consecutive pages of one block, for the bytes from ``start`` to ``stop`` (exclusive) of the requested data.

    ``head`` is the offset of byte ``start`` within the first page. ``rows`` and ``words`` have an item for each page.
    Only a part of the first page and of the last page may be requested.
    """

    start: int
    stop: int
    head: int
    kind: _Kind
    rows: Words
    words: Words

    def make(self, out: Words, first: int, stop: int) -> None:
        """Write the complete pages ``first`` to ``stop`` (exclusive) of this run into the rows of ``out``."""
        kind, words, filled = self.kind, self.words[first:stop], self.kind.lanes
        rows, lanes = self.rows[first:stop, :filled], out[:, :filled]
        if kind.is_masked:
            np.bitwise_and(words, kind.mask[:filled], out=lanes)
            np.bitwise_xor(rows, lanes, out=lanes)
        else:
            np.bitwise_xor(rows, words, out=lanes)
        if filled < _LANES:
            out[:, filled:] = 0


class _Memory:
    """Allocates memory for blocks in huge pages. Each huge page contains two blocks.

    With memory pages of the normal size, the generation of content takes 10 % longer. A huge page is freed when both of
    its blocks are freed. Threads may use an instance concurrently.
    """

    def __init__(self) -> None:
        self._spare: list[Words] = []
        self._lock = threading.Lock()

    def block(self) -> Words:
        # With the lock, two threads that begin concurrently share one huge page.
        with self._lock:
            if not self._spare:
                halves = Buffers(2, _BLOCK_BYTES).slots
                self._spare = [half.view(np.uint64).reshape(BLOCK_PAGES, _LANES) for half in halves]
            return self._spare.pop()


class _Scratch:
    """Memory for the expected content of one block. Each thread that compares data has a separate instance."""

    def __init__(self, memory: _Memory) -> None:
        self.words = memory.block()
        self.bytes: Bytes = self.words.reshape(-1).view(np.uint8)
        self.address = self.words.ctypes.data


class _OfThread(threading.local):
    """The scratch memory of each thread. ``scratch`` is None before the thread's first comparison."""

    scratch: _Scratch | None = None


class Content:
    """The content of all checkpoints of one subject. Threads may use an instance concurrently.

    An instance uses at most 10 MiB, and 1 MiB for each thread that compares data.

    ``compressible`` is the share of zeros in every page; it serves to test the data reduction of an array. If
    ``constant``, all pages of all checkpoints are equal. If saves of constant content and of usual content differ in
    speed, the content affects the array.

    ``tensors`` are the number types of a rank's tensors. If given, pages compress like tensors of these types. A page's
    place contains the number of the tensor in a field of ``tensor_bits`` bits. All processes that generate or compare
    the content use the same ``tensor_bits``.
    """

    def __init__(
        self,
        seed: int,
        *,
        compressible: float = 0.0,
        constant: bool = False,
        tensors: Sequence[Dtype] = (),
        tensor_bits: int = USUAL_TENSOR_BITS,
    ) -> None:
        # The place uses the whole word, so that the encoding can be inverted.
        self._tensor_bits, self._page_bits = tensor_bits, WITHIN_RANK_BITS - tensor_bits
        generator = np.random.Generator(np.random.SFC64(seed))
        # The first words of each row of all blocks.
        self._first: Words = generator.integers(0, 1 << 64, size=(BLOCK_PAGES, _COMMON), dtype=np.uint64)
        self._key = int(generator.integers(0, 1 << 64, dtype=np.uint64))
        mask = np.full(_LANES, _ALL_BITS)
        mask[_LANES - round(compressible * _LANES) :] = 0
        self._mask, self._seed, self._constant = mask, seed, constant
        kinds = {dtype: _Kind(dtype, mask) for dtype in dict.fromkeys(tensors)}
        self._of_tensor = tuple(kinds[dtype] for dtype in tensors)
        self._kinds = tuple(kinds.values()) or (_Kind(None, mask),)
        self._cached_block = functools.lru_cache(maxsize=_BLOCKS_HELD)(self._generate)
        # Misplaced pages come in long sequences, so their blocks are cached in addition to the blocks in use.
        self._cached_elsewhere = functools.lru_cache(maxsize=2)(self._generate)
        self._checkpoint = 0
        # Separate, so that a scratch does not keep half of a huge page whose other half was a block.
        self._memory, self._memory_to_compare = _Memory(), _Memory()
        self._of_thread = _OfThread()

    def fill(self, out: Bytes, place: TensorKey, offset: int = 0) -> None:
        """Write bytes of the tensor ``place``, beginning at ``offset``, into ``out``. ``out`` is contiguous."""
        with _buffers_of_a_page():
            for run in self._runs(place, offset, len(out)):
                self._fill(out[run.start : run.stop], run)

    def differing_pages(self, data: Bytes, place: TensorKey, offset: int = 0) -> list[tuple[int, int]]:
        """Compare ``data`` with the bytes of the tensor ``place``, beginning at ``offset``.

        Return (start, stop) of every page that differs, in order. Both are offsets in ``data``.
        """
        bad: list[tuple[int, int]] = []
        scratch = self._of_thread.scratch = self._of_thread.scratch or _Scratch(self._memory_to_compare)
        address = data.ctypes.data
        with _buffers_of_a_page():
            for run in self._runs(place, offset, len(data)):
                start, head, length, pages = run.start, run.head, run.stop - run.start, len(run.words)
                run.make(scratch.words[:pages], 0, pages)
                if _libc.memcmp(scratch.address + head, address + start, length) != 0:
                    expected, seen = scratch.bytes[head : head + length], data[start : run.stop]
                    bad.extend((start + a, start + b) for a, b in _differing(expected, seen, head))
        return bad

    def expected(self, place: TensorKey, offset: int, length: int) -> Bytes:
        """Return a new array with ``length`` bytes of the tensor ``place``, beginning at ``offset``."""
        out = np.empty(length, dtype=np.uint8)
        self.fill(out, place, offset)
        return out

    def crc32(self, place: TensorKey, length: int) -> int:
        """Return the CRC-32 of the first ``length`` bytes of the tensor ``place``. Complete pages are not generated."""
        whole, rest = divmod(length, PAGE_BYTES)
        total = 0
        for page in range(0, whole, _CHECKSUM_PAGES):
            pages = min(_CHECKSUM_PAGES, whole - page)
            checksums = self._rows(place, page).checksums
            part = checksums.of_pages(page % BLOCK_PAGES, self._words(place, page, pages))
            total = join(total, part, pages * PAGE_BYTES)
        if rest:
            total = join(total, linear(self.expected(place, whole * PAGE_BYTES, rest).tobytes()), rest)
        return total ^ of_zeros(length)

    def origin(self, page: Bytes) -> tuple[TensorKey, int] | None:
        """Return (tensor, page number) of a page. Return None if ``page`` is not a complete page of this content."""
        for kind in () if self._constant else self._kinds:
            if found := self._origin_in(kind, page.view(np.uint64)[: kind.lanes]):
                return found
        return None

    def _origin_in(self, kind: _Kind, lanes: Words) -> tuple[TensorKey, int] | None:
        """Return (tensor, page number) of a page whose number type is ``kind``; None for any other bytes.

        ``lanes`` are the 64-bit words of the page.
        """
        if len(lanes) < _COMMON:
            return None
        mask, common = kind.mask[: kind.lanes], kind.of(self._first)
        # For each row: the word that a page of this row has if it begins with these bytes. It changes all bits of the
        # first word.
        words = lanes[0] ^ common[:, 0]
        # At most one row also matches the second word.
        for row in map(int, np.flatnonzero(lanes[1] ^ common[:, 1] == words & mask[1])):
            packed = _unmix(int(words[row])) ^ self._key
            number = packed & ((1 << self._page_bits) - 1)
            packed >>= self._page_bits
            tensor = packed & ((1 << self._tensor_bits) - 1)
            packed >>= self._tensor_bits
            rank = packed & ((1 << RANK_BITS) - 1)
            if number % BLOCK_PAGES != row or (self._of_tensor and tensor >= len(self._of_tensor)):
                continue
            place = TensorKey(checkpoint=packed >> RANK_BITS, rank=rank, tensor=tensor)
            block = self._cached_elsewhere(self._kind(place), _group(place, number)).block
            if bool(np.all(lanes ^ block[row, : kind.lanes] == words[row] & mask)):
                return place, number
        return None

    def _kind(self, place: TensorKey) -> _Kind:
        return self._of_tensor[place.tensor] if self._of_tensor else self._kinds[0]

    def _rows(self, place: TensorKey, page: int) -> _Rows:
        if self._constant:
            return self._cached_block(self._kind(place), ())
        if place.checkpoint != self._checkpoint:
            # Blocks of another checkpoint are not needed again soon.
            self._cached_block.cache_clear()
            self._checkpoint = place.checkpoint
        return self._cached_block(self._kind(place), _group(place, page))

    def _generate(self, kind: _Kind, group: tuple[int, ...]) -> _Rows:
        """Generate the block with the key ``group`` (see `_group`) for numbers of type ``kind``."""
        generator = np.random.Generator(np.random.SFC64((self._seed, *group)))
        rows = self._memory.block()
        # In parts, because the allocator of each thread keeps the memory of one part.
        for start in range(0, BLOCK_PAGES, _PART_PAGES):
            stop = start + _PART_PAGES
            part: Words = generator.integers(0, 1 << 64, size=(_PART_PAGES, _LANES), dtype=np.uint64)
            part[:, :_COMMON] = self._first[start:stop]
            if self._constant:
                part[:] = self._first[0, 0]
            part[:, self._mask == 0] = 0
            rows[start:stop] = kind.of(part)
        return _Rows(kind, rows)

    @staticmethod
    def _fill(out: Bytes, run: _Run) -> None:
        """Write the bytes of a run into ``out``.

        Pages that are only partly requested are generated separately and copied.
        """
        head, pages = run.head, len(run.words)
        first, last = (1 if head else 0), (head + len(out)) // PAGE_BYTES
        if first < last:
            whole = out[first * PAGE_BYTES - head : last * PAGE_BYTES - head]
            run.make(whole.view(np.uint64).reshape(last - first, _LANES), first, last)
        # If one page contains all bytes, it is made once.
        for page in {*range(first), *range(last, pages)}:
            made = np.empty((1, _LANES), dtype=np.uint64)
            run.make(made, page, page + 1)
            start, stop = max(0, page * PAGE_BYTES - head), min(len(out), (page + 1) * PAGE_BYTES - head)
            begin = start + head - page * PAGE_BYTES
            out[start:stop] = made[0].view(np.uint8)[begin : begin + stop - start]

    def _runs(self, place: TensorKey, offset: int, length: int) -> Iterator[_Run]:
        """Yield the runs for ``length`` bytes of a tensor, beginning at ``offset``. Each run is within one block."""
        (page, head), done = divmod(offset, PAGE_BYTES), 0
        end = -(-(offset + length) // PAGE_BYTES)
        while page < end:
            # The pages of a group have the same block.
            pages = min(end, (page >> _PAGE_SHIFT) + 1 << _PAGE_SHIFT) - page
            rows, words = self._rows(place, page), self._words(place, page, pages)[:, None]
            at = 0
            while at < pages:
                row = (page + at) % BLOCK_PAGES
                count = min(pages - at, BLOCK_PAGES - row)
                stop = min(length, done + count * PAGE_BYTES - head)
                yield _Run(done, stop, head, rows.kind, rows.block[row : row + count], words[at : at + count])
                at, done, head = at + count, stop, 0
            page += pages

    def _words(self, place: TensorKey, page: int, pages: int) -> Words:
        if (page + pages) >> self._page_bits:
            raise ValueError(f"a tensor has at most {1 << self._page_bits} pages")
        if place.tensor >> self._tensor_bits:
            raise ValueError(f"tensor {place.tensor} is outside 0..{(1 << self._tensor_bits) - 1}")
        if self._constant:
            return np.zeros(pages, dtype=np.uint64)
        base = place.checkpoint << RANK_BITS | place.rank
        base = (base << self._tensor_bits | place.tensor) << self._page_bits
        word = np.arange(base + page, base + page + pages, dtype=np.uint64)
        word ^= np.uint64(self._key)
        for shift, factor in _STEPS:
            word ^= word >> shift
            word *= factor
        word ^= word >> _LAST_SHIFT
        return word


@contextlib.contextmanager
def _buffers_of_a_page() -> Iterator[None]:
    """In the ``with`` block, let numpy use buffers of one page.

    With larger buffers, numpy copies each 64-bit word before it repeats the word over the page. This takes twice the
    time.
    """
    usual = np.setbufsize(_LANES)
    try:
        yield
    finally:
        np.setbufsize(usual)


def _group(place: TensorKey, page: int) -> tuple[int, ...]:
    """Return the key of the block that a page uses. Pages with the same key use the same block."""
    return place.checkpoint, place.rank, place.tensor >> _TENSOR_SHIFT, page >> _PAGE_SHIFT


def _unmix(word: int) -> int:
    mask = (1 << 64) - 1
    word = (word ^ (word >> 31) ^ (word >> 62)) * _INVERSE_2 & mask
    word = (word ^ (word >> 27) ^ (word >> 54)) * _INVERSE_1 & mask
    return word ^ (word >> 30) ^ (word >> 60)


def _differing(expected: Bytes, seen: Bytes, head: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of each page in which ``seen`` differs from ``expected``.

    ``head`` is the offset of the first byte within its page.
    """
    start = 0
    while start < len(seen):
        stop = min(len(seen), start + PAGE_BYTES - (head if start == 0 else 0))
        if not np.array_equal(expected[start:stop], seen[start:stop]):
            yield start, stop
        start = stop


def as_numbers(block: Words, kind: Dtype) -> Words:
    """Convert a block of random bits to numbers of type ``kind`` with realistic exponents. Return the numbers.

    Numbers of one byte have no exponent and remain unchanged.
    """
    size = ITEM_BYTES[kind]
    if size == 1:
        return block
    made = block.copy()
    every = made.view(np.uint8)
    every[:, size - 1 :: size] = _EXPONENTS[every[:, size - 1 :: size]]
    # Bytes that are zero because of ``compressible`` stay zero.
    made[block == 0] = 0
    return made


def mantissas(mask: Words, kind: Dtype) -> Words:
    """Return ``mask`` without the exponent bits of numbers of type ``kind``. The first 64-bit word keeps all bits."""
    size = ITEM_BYTES[kind]
    if size == 1:
        return mask
    bits = np.frombuffer(bytes([255] * (size - 1) + [0]) * (8 // size), dtype="<u8")[0]
    made: Words = mask & bits
    made[0] = mask[0]
    return made


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A wrong range of a tensor with one kind of fault.

    ``offset`` is the position of the range in the tensor, and ``bytes`` is its length.
    """

    kind: FaultKind
    offset: int
    bytes: int
    detail: str


def compare(
    content: Content, data: Bytes, place: TensorKey, offset: int = 0, *, maximum: int = 20
) -> tuple[int, list[Finding]]:
    """Compare ``data``, which were read from storage, with the bytes of the tensor ``place``, beginning at ``offset``.

    Return (number of wrong pages, the first ``maximum`` wrong ranges). Adjacent pages with the same kind of fault form
    one range.
    """
    bad = content.differing_pages(data, place, offset)
    findings: list[Finding] = []
    for start, stop in bad:
        finding = _classify(content, data[start:stop], place, offset + start)
        last = findings[-1] if findings else None
        if last and last.kind == finding.kind and last.offset + last.bytes == finding.offset:
            findings[-1] = Finding(
                kind=last.kind, offset=last.offset, bytes=last.bytes + finding.bytes, detail=last.detail
            )
        elif len(findings) == maximum:
            break
        else:
            findings.append(finding)
    return len(bad), findings


def _classify(content: Content, seen: Bytes, place: TensorKey, offset: int) -> Finding:
    kind, detail = _kind(content, seen, place, offset)
    return Finding(kind=kind, offset=offset, bytes=len(seen), detail=detail)


def _kind(content: Content, seen: Bytes, place: TensorKey, offset: int) -> tuple[FaultKind, str]:
    expected = content.expected(place, offset, len(seen))
    wrong = np.flatnonzero(expected != seen)
    if not seen.any():
        return "zeros", "the page contains zeros"
    if len(wrong) <= _FLIPPED_BYTES:
        bits = int(np.unpackbits(expected[wrong] ^ seen[wrong]).sum())
        differ = f"{counted(bits, 'bit differs', 'bits differ')} in {counted(len(wrong), 'byte')}"
        return "flipped", f"{differ}, the first at byte {offset + int(wrong[0])}"
    if len(seen) == PAGE_BYTES and (origin := content.origin(np.ascontiguousarray(seen))):
        there, page = origin
        if (there.rank, there.tensor, page) == (place.rank, place.tensor, offset // PAGE_BYTES):
            return "stale", f"the page is from checkpoint {there.checkpoint} at the same place"
        where = f"rank {there.rank}, tensor {there.tensor}, offset {page * PAGE_BYTES} of checkpoint {there.checkpoint}"
        return "misplaced", f"the page belongs to {where}"
    # Pages of the file and of the tensor need not be aligned with each other, so the place of a tear need not be
    # either.
    first = int(wrong[0])
    rest = seen[first:]
    if first >= _SECTOR_BYTES or not rest.any():
        behind = "zeros" if not rest.any() else "other bytes"
        return "torn", f"the page is right up to byte {offset + first} and contains {behind} after it"
    return "foreign", "the page contains bytes that this run never wrote at the place of a page"
