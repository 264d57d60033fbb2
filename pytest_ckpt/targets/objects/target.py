"""A target in an object store: a prefix in a bucket.

The module tests the permissions for the prefix, and creates and removes a run's objects.
"""

from __future__ import annotations

import contextlib
import dataclasses
import email.utils
import errno
import ipaddress
import json
import secrets
import socket
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.targets import Access, AreaRef, Capability, Leftover, Names, TargetFacts
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import undisturbed
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.errors import StoreError, refusal
from pytest_ckpt.targets.objects.keys import RUN, TRIAL, BucketPrefix, prefix_of, read_prefix
from pytest_ckpt.targets.objects.wire import OF_CONTROLLER
from pytest_ckpt.targets.owner import OWNER, host_elsewhere, is_alive, owner_of
from pytest_ckpt.targets.timed_calls import NoAnswerError, RefusedError, call_in_time

EndpointLocation = Literal["loopback", "this host", "elsewhere"]


def endpoint_location(endpoint: str, *, may_connect: bool) -> EndpointLocation:
    """Return the location of an endpoint: the loopback interface, another address of this host, or elsewhere.

    A host name is resolved only if ``may_connect`` is true. A name that is not resolved counts as elsewhere.
    """
    host = urllib.parse.urlsplit(endpoint).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return "loopback"
    flags = 0 if may_connect else socket.AI_NUMERICHOST
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, flags=flags)}
    except (OSError, UnicodeError):
        return "elsewhere"
    if addresses and all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in addresses):
        return "loopback"
    return "this host" if any(map(_is_local_address, addresses)) else "elsewhere"


def _is_local_address(address: str) -> bool:
    """Return whether an address belongs to this host. The test binds a socket to the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as trial:
        trial.bind((address, 0))
        return True
    return False


_ROLES = {
    "az": "of the role Storage Blob Data Contributor, or a SAS token with racwdl",
    "gs": "of the role Storage Object User (roles/storage.objectUser)",
}
_DATA = b"pytest-ckpt tries whether it may write here.\n"


def permission_remedy(scheme: str, permission: str) -> str:
    """Return the remedy for a missing permission of S3. For Azure and Google, the remedy names a role instead."""
    return f"Give these credentials the permission {_ROLES.get(scheme, permission)}."


def try_all(bucket: Bucket, place: BucketPrefix, name: str) -> None:
    """Test all permissions that a run needs, with a test object and an unfinished upload.

    Afterwards, remove the test object and the upload. Raises UsageError if a request fails; the text of the error
    begins with ``name``. If the store refuses to delete the object or to abort the upload, the error contains the
    command for this removal.
    """
    key = f"{place.below}{TRIAL}"

    def do(action: str, permission: str, act: Callable[[], None], stays: str = "") -> None:
        try:
            act()
        except OSError as error:
            refused = refusal(f"{name}: {action}", error)
            remedy = permission_remedy(place.scheme, permission) if error.errno == errno.EACCES else refused.remedy
            raise UsageError(refused.what, " ".join(filter(None, (remedy, stays)))) from None

    def read() -> None:
        if bucket.get(key) != _DATA:
            raise OSError(errno.EIO, "what comes back is not what was put", bucket.url(key))

    do("an object cannot be put", "s3:PutObject", lambda: _put(bucket, key, name))
    do("an object cannot be read", "s3:GetObject", read)
    do("objects cannot be listed", "s3:ListBucket", lambda: _listed(bucket, place, key))
    upload: list[str] = []
    do("no upload in parts can be begun", "s3:PutObject", lambda: upload.append(bucket.begin_upload(key)))
    by_hand = f"An unfinished upload stays: {place.abortion(key, upload[0], bucket.access)}"
    do("an upload cannot be aborted", "s3:AbortMultipartUpload", lambda: bucket.abort_upload(key, upload[0]), by_hand)
    do("unfinished uploads cannot be listed", "s3:ListBucketMultipartUploads", lambda: _list_uploads(bucket, place))
    stays = f"The uploaded object remains: {place.removal(bucket.access)}"
    do("an object cannot be deleted", "s3:DeleteObject", lambda: bucket.delete(key), stays)


def _put(bucket: Bucket, key: str, name: str) -> None:
    """Put the test object. Raises UsageError if the bucket keeps versions.

    If the store's answer contains a version id, the bucket keeps versions. Every deleted checkpoint would then remain
    as a version. Before the error is raised, the created version of the test object is deleted.
    """
    version = bucket.put_version(key, _DATA)
    if version:
        with contextlib.suppress(OSError):
            bucket.delete(key, version)
        raise keeps_versions(name)


def keeps_versions(name: str) -> UsageError:
    """Return the UsageError for a bucket that keeps versions."""
    return UsageError(
        f"{name}: the bucket keeps versions, so that every checkpoint that is deleted would stay.",
        "Name a bucket that was made without versioning. To suspend it is not enough: delete markers stay, and with "
        "object lock it is impossible.",
    )


def _listed(bucket: Bucket, place: BucketPrefix, key: str) -> None:
    if key not in bucket.keys(place.below):
        raise OSError(errno.EIO, "an object that was put is not among them", bucket.url(key))


def _list_uploads(bucket: Bucket, place: BucketPrefix) -> None:
    bucket.uploads(place.below)


OPENER = "pytest_ckpt.targets.objects.store:open_store"
CLEAN = "pytest_ckpt.targets.objects.remove:clean_in_process"
_CAPABILITIES: Mapping[str, frozenset[Capability]] = {
    "s3": frozenset(("objects", "parts of S3")),
    "az": frozenset(("objects",)),
    "gs": frozenset(("objects",)),
}
# The store refuses signed requests if the clock is off by more than this.
_MAXIMUM_SKEW_SECONDS = 900.0
_ASKS_VERSIONS = {
    "s3": "s3:GetBucketVersioning",
    "az": "to read the properties of the blob service",
    "gs": "storage.buckets.get",
}
# Error codes of an endpoint whose host name already contains the bucket: it interprets the bucket in the path as a key.
_NOTHING_THERE = frozenset(("NoSuchKey", "NoSuchBucket"))


def target(location: str, access: Access) -> ObjectTarget:
    """Return the target for a bucket and a prefix. Raises UsageError for an invalid location."""
    return ObjectTarget(read_prefix(location), access)


def target_of_azure(location: str, access: Access) -> ObjectTarget:
    """Return the target for a container of Azure and a prefix. Raises UsageError for an invalid location."""
    return ObjectTarget(read_prefix(location, "az"), access)


def target_of_google(location: str, access: Access) -> ObjectTarget:
    """Return the target for a bucket of Google and a prefix. Raises UsageError for an invalid location."""
    return ObjectTarget(read_prefix(location, "gs"), access)


class ObjectTarget:
    """A prefix in a bucket, as a target."""

    def __init__(self, place: BucketPrefix, access: Access) -> None:
        self._place, self._access = place, access
        self._name = f"--ckpt-target {place.url}"

    def describe(self) -> TargetFacts:
        """Return the target's facts without any request to the store."""
        return self._facts("", ", ".join(self._access.endpoints), "")

    def check(self) -> TargetFacts:
        """Return the target's facts; nothing is written.

        Raises UsageError if the keys cannot be listed, the clock differs too much, or the bucket keeps versions.
        """
        with contextlib.closing(self._bucket()) as bucket:
            try:
                headers = bucket.probe(self._place.below).headers
            except OSError as error:
                raise refusal(self._name, error, self._remedy_of_listing(bucket.endpoint, error)) from None
            self._check_clock(headers.get("date", ""))
            self._check_versions(bucket)
        server = self._access.embedded or headers.get("server", "")
        return self._facts(server, bucket.endpoint, bucket.region, may_connect=True)

    def place(self) -> AreaRef:
        """Return a reference to the prefix of the target. The reference belongs to no run."""
        return self._area(self._place, "", ())

    def create_area(self, run_id: str) -> AreaRef:
        """Create the run's prefix with its owner's record, and test all permissions there. Raises UsageError.

        If a test fails, the created objects are removed.
        """
        place, identity = self._place.area(run_id), secrets.token_hex(8)
        area = self._area(place, run_id, (identity,))
        owner = json.dumps(owner_of(run_id) | {"identity": identity}).encode() + b"\n"
        with contextlib.closing(self._bucket()) as bucket:
            try:
                bucket.put(f"{place.below}{OWNER}", owner, if_absent=True)
            except OSError as error:
                raise refusal(f"{self._name}: no object can be put below {place.url}", error) from None
            try:
                try_all(bucket, place, self._name)
            except BaseException:
                # By their keys, because the listing itself may be forbidden.
                with undisturbed():
                    for name in (TRIAL, OWNER):
                        with contextlib.suppress(OSError):
                            bucket.delete(f"{place.below}{name}")
                raise
        return area

    def leftovers(self) -> Sequence[Leftover]:
        """Return the prefixes of earlier runs whose controller has ended or is on another host."""
        with contextlib.closing(self._bucket()) as bucket:
            try:
                directories = bucket.directories(f"{self._place.below}{RUN}")
                return [leftover for directory in directories if (leftover := self._leftover(bucket, directory))]
            except OSError as error:
                raise refusal(f"{self._name}: earlier runs cannot be looked for", error) from None

    def clean(self, area: AreaRef, names: Names, deadline_seconds: float, *, keep_area: bool = False) -> list[str]:
        """Remove the run's objects, in a separate process. Return one sentence for each object that remains."""
        settings = {
            "area": to_plain(dataclasses.replace(area, access=self._access)),
            "files": {subject: sorted(files) for subject, files in names.files.items()},
            "other_files": {subject: sorted(files) for subject, files in names.other_files.items()},
            "directories": sorted(names.directories),
            "keep_area": keep_area,
        }
        place = prefix_of(area)
        try:
            left: list[str] = call_in_time(CLEAN, settings, deadline_seconds)
        except NoAnswerError:
            silence = f"the store did not answer for {deadline_seconds:g} s"
            return [f"{place.url} stays: {silence}; {_manual_removal(place, self._access)}"]
        except RefusedError as error:
            return [f"{place.url} was not removed: {error}; {_manual_removal(place, self._access)}"]
        return left

    def _leftover(self, bucket: Bucket, directory: str) -> Leftover | None:
        try:
            owner = json.loads(bucket.get(f"{directory}{OWNER}"))
            run_id, host, alive = str(owner["run"]), str(owner["host"]), is_alive(owner)
            elsewhere = host_elsewhere(owner)
        except (FileNotFoundError, ValueError, LookupError, TypeError, OverflowError):
            return None
        if alive:
            return None
        place = dataclasses.replace(self._place, prefix=directory.rstrip("/"))
        uploads = len(bucket.uploads(directory))
        action = f"{place.url} with {uploads} unfinished uploads" if uploads else place.url
        command = place.removal(self._access)
        return Leftover(what=action, why=f"run {run_id} of {host}", command=command, elsewhere=elsewhere)

    def _area(self, place: BucketPrefix, run_id: str, identity: tuple[str, ...]) -> AreaRef:
        return AreaRef(
            scheme=place.scheme,
            location=place.url,
            run_id=run_id,
            opener=OPENER,
            identity=identity,
            access=self._access,
        )

    def _facts(self, server: str, endpoint: str, region: str, *, may_connect: bool = False) -> TargetFacts:
        locations = {endpoint_location(each, may_connect=may_connect) for each in self._access.endpoints or (endpoint,)}
        endpoint = ", ".join(self._access.endpoints) or endpoint
        parameters = (("endpoint", endpoint), ("region", region))
        options = ", ".join(f"{name} {value}" for name, value in parameters if value)
        return TargetFacts(
            location=self._place.url,
            kind=self._place.scheme,
            gate_kind="object" if locations == {"elsewhere"} else "object-local",
            is_local=locations == {"loopback"},
            capacity=None,
            capabilities=_CAPABILITIES[self._place.scheme],
            source=f"embedded: {server}" if self._access.embedded and server else server,
            options=options,
        )

    def _bucket(self) -> Bucket:
        try:
            return Bucket(self._place, self._access, OF_CONTROLLER)
        except OSError as error:
            raise refusal(self._name, error) from None

    def _remedy_of_listing(self, endpoint: str, error: OSError) -> str:
        """Return the remedy if keys cannot be listed; empty if ``error`` already names the remedy."""
        code = error.code if isinstance(error, StoreError) else ""
        if code == "AccessDenied":
            return permission_remedy(self._place.scheme, "s3:ListBucket")
        url = urllib.parse.urlsplit(endpoint)
        if code in _NOTHING_THERE and url.netloc.startswith(f"{self._place.bucket}."):
            without = f"{url.scheme}://{url.netloc.removeprefix(f'{self._place.bucket}.')}"
            return f"The endpoint names the bucket itself, and so does the target. Say --ckpt-endpoint={without}"
        if error.errno not in (errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPROTO):
            return ""
        where = ", ".join(self._access.endpoints) or "the endpoint of the profile, or the cloud's own"
        tls = " Name your own certificate with AWS_CA_BUNDLE." if error.errno == errno.EPROTO else ""
        return f"Look whether this host reaches {where}, or name another with --ckpt-endpoint.{tls}"

    def _check_clock(self, date: str) -> None:
        store_time = email.utils.parsedate_tz(date)
        if store_time is None:
            return
        skew = time.time() - email.utils.mktime_tz(store_time)
        if abs(skew) > _MAXIMUM_SKEW_SECONDS:
            raise UsageError(
                f"{self._name}: the clock of this host is {abs(skew) / 60:.0f} minutes "
                f"{'ahead of' if skew > 0 else 'behind'} the store's.",
                "Set both by NTP: signed requests are refused after 15 minutes.",
            )

    def _check_versions(self, bucket: Bucket) -> None:
        """Raise UsageError if the bucket keeps deleted objects.

        Without the permission to query this property, UsageError is also raised. The option ``--ckpt-unversioned``
        prevents only this second error.
        """
        try:
            keeps = bucket.keeps_versions()
        except OSError as error:
            if error.errno != errno.EACCES or self._access.unversioned:
                # A store that does not support the query has no versions.
                return
            raise UsageError(
                f"{self._name}: these credentials may not query whether the bucket keeps versions.",
                f"Give them the permission {_ASKS_VERSIONS[self._place.scheme]}, or set --ckpt-unversioned if the "
                "bucket does not keep deleted objects.",
            ) from None
        if keeps:
            raise keeps_versions(self._name)


def _manual_removal(place: BucketPrefix, access: Access) -> str:
    return f"by hand: {place.removal(access)}"
