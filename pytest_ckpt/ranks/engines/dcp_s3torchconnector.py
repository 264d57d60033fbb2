"""Engine ``dcp-s3torchconnector``: torch.distributed.checkpoint with the writer and reader of Amazon's S3 connector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3torchconnector import S3ClientConfig, S3ReaderConstructor
from s3torchconnector import __version__ as version
from s3torchconnector._s3client import S3Client
from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
from s3torchconnector.dcp.s3_file_system import S3FileSystem
from s3torchconnectorclient import S3Exception

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


class SharedMetadataReader(S3StorageReader):
    """The connector's reader, with one `.metadata` for all ranks.

    By default the library reads a separate `.metadata` of each rank, which does not exist in these checkpoints.
    """

    def read_metadata(self) -> Metadata:
        """Read the `.metadata` that all ranks share."""
        return super().read_metadata()


class ConnectorEngine(ObjectsDcpEngine):
    """An engine that creates a new client for each save and each load, as described in the connector's manual."""

    client = Client(name=f"s3torchconnector {version}", errors=(S3Exception, OSError))
    writes = "S3StorageWriter as it is: one object a rank, in parts of 8 MiB"
    reads = "S3StorageReader as it is: dcp_optimized"

    def new_writer(self, place: ObjectPlace) -> FileSystemWriter:
        """Return the connector's writer for a checkpoint at ``place``, with a new client."""
        writer = S3StorageWriter(place.region, place.url)
        writer.fs = S3FileSystem(place.region, s3_client=_client(place))  # type: ignore[assignment]
        return writer

    def new_reader(self, place: ObjectPlace) -> FileSystemReader:
        """Return the connector's reader for a checkpoint at ``place``, with a new client."""
        ranges = S3ReaderConstructor.dcp_optimized()
        reader = SharedMetadataReader(place.region, place.url, reader_constructor=ranges)
        reader.fs = S3FileSystem(place.region, s3_client=_client(place), reader_constructor=ranges)
        return reader


def _client(place: ObjectPlace) -> S3Client:
    """Return a client with the connector's default settings. If ``place`` has an endpoint, requests are path-style."""
    settings = S3ClientConfig(unsigned=place.is_open, force_path_style=bool(place.endpoint))
    return S3Client(place.region, endpoint=place.endpoint or None, s3client_config=settings)


def make(
    *, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
) -> ConnectorEngine:
    """Return the engine for the files of one rank. All ranks call each of the engine's methods together."""
    return ConnectorEngine(shard, content, group, activity, options)
