"""Engine ``dcp-s3fs``: torch.distributed.checkpoint with its own fsspec writer and reader; s3fs is the S3 client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import s3fs
from aiohttp import ClientError as HttpError
from botocore.exceptions import BotoCoreError, ClientError
from torch.distributed.checkpoint import _fsspec_filesystem as of_torch

from pytest_ckpt.ranks.engines.dcp_objects import Client, ObjectsDcpEngine

if TYPE_CHECKING:
    from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
    from torch.distributed.checkpoint.metadata import Metadata

    from pytest_ckpt.ranks.content import Content
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import ObjectPlace


class SharedMetadataReader(of_torch.FsspecReader):
    """The library's reader of objects, with one `.metadata` for all ranks.

    By default the library reads a separate `.metadata` of each rank, which does not exist in these checkpoints.
    """

    def read_metadata(self) -> Metadata:
        """Read the `.metadata` that all ranks share."""
        return super().read_metadata()


class FsspecEngine(ObjectsDcpEngine):
    """An engine that saves and loads through fsspec.

    Each process has one client. The client's cached listings are dropped before a load.
    """

    client = Client(name=f"s3fs {s3fs.__version__}", errors=(OSError, BotoCoreError, ClientError, HttpError))
    writes = (
        "FsspecWriter as it is: one object a rank, of one request up to 100 MiB; sync_files, by os.sync of the host"
    )
    reads = "FsspecReader as it is"

    def new_writer(self, place: ObjectPlace) -> FileSystemWriter:
        """Return the library's writer for a checkpoint at ``place``."""
        return of_torch.FsspecWriter(place.url, **_s3fs_settings(place))

    def new_reader(self, place: ObjectPlace) -> FileSystemReader:
        """Return the library's reader for a checkpoint at ``place``."""
        reader = SharedMetadataReader(place.url, **_s3fs_settings(place))
        reader.fs.fs.invalidate_cache()  # type: ignore[attr-defined]
        return reader


def _s3fs_settings(place: ObjectPlace) -> Any:
    """Return the settings of s3fs that are needed to reach ``place``. Other settings keep their defaults."""
    client: dict[str, object] = {"region_name": place.region}
    if place.ca_bundle:
        client["verify"] = place.ca_bundle
    words: dict[str, object] = {"anon": place.is_open, "client_kwargs": client}
    if place.endpoint:
        words |= {"endpoint_url": place.endpoint, "config_kwargs": {"s3": {"addressing_style": "path"}}}
    return words


def make(
    *, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
) -> FsspecEngine:
    """Return the engine for the files of one rank. All ranks call each of the engine's methods together."""
    return FsspecEngine(shard, content, group, activity, options)
