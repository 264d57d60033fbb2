"""A bucket of an object store, and a prefix in it, as a target."""

from __future__ import annotations

import contextlib
import dataclasses
import email.utils
import errno
import json
import secrets
import time
import urllib.parse
from collections.abc import Mapping, Sequence

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.targets import Access, AreaRef, Capability, Leftover, Names, TargetFacts
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import undisturbed
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.errors import StoreError, refusal
from pytest_ckpt.targets.objects.keys import RUN, TRIAL, BucketPrefix, prefix_of, read_prefix
from pytest_ckpt.targets.objects.nearness import nearness_of
from pytest_ckpt.targets.objects.permissions import keeps_versions, lacking, try_all
from pytest_ckpt.targets.objects.wire import OF_CONTROLLER
from pytest_ckpt.targets.owner import OWNER, host_elsewhere, is_alive, owner_of
from pytest_ckpt.targets.timed_calls import NoAnswerError, RefusedError, call_in_time

OPENER = "pytest_ckpt.targets.objects.store:open_store"
CLEAN = "pytest_ckpt.targets.objects.cleanup:clean_as_asked"
_CAPABILITIES: Mapping[str, frozenset[Capability]] = {
    "s3": frozenset(("objects", "parts of S3")),
    "az": frozenset(("objects",)),
    "gs": frozenset(("objects",)),
}
# Signed requests are refused beyond it.
_MAXIMUM_SKEW_SECONDS = 900.0
_ASKS_VERSIONS = {
    "s3": "s3:GetBucketVersioning",
    "az": "to read the properties of the blob service",
    "gs": "storage.buckets.get",
}
# What a host that is called as the bucket is says of that bucket's name, which it takes for a key.
_NOTHING_THERE = frozenset(("NoSuchKey", "NoSuchBucket"))


def target(location: str, access: Access) -> ObjectTarget:
    """Return the target of a bucket and a prefix. Raises UsageError where the location names none."""
    return ObjectTarget(read_prefix(location), access)


def target_of_azure(location: str, access: Access) -> ObjectTarget:
    """Return the target of a container of Azure and a prefix. Raises UsageError where the location names none."""
    return ObjectTarget(read_prefix(location, "az"), access)


def target_of_google(location: str, access: Access) -> ObjectTarget:
    """Return the target of a bucket of Google and a prefix. Raises UsageError where the location names none."""
    return ObjectTarget(read_prefix(location, "gs"), access)


class ObjectTarget:
    """A prefix in a bucket."""

    def __init__(self, place: BucketPrefix, access: Access) -> None:
        self._place, self._access = place, access
        self._name = f"--ckpt-target {place.url}"

    def describe(self) -> TargetFacts:
        """Return what can be said without a request."""
        return self._facts("", ", ".join(self._access.endpoints), "")

    def check(self) -> TargetFacts:
        """Return what it is; nothing is written. Raises UsageError when its bucket does not serve these credentials."""
        with contextlib.closing(self._bucket()) as bucket:
            try:
                headers = bucket.look(self._place.below).headers
            except OSError as error:
                raise refusal(self._name, error, self._remedy_of_look(bucket.endpoint, error)) from None
            self._check_clock(headers.get("date", ""))
            self._check_versions(bucket)
        server = self._access.embedded or headers.get("server", "")
        return self._facts(server, bucket.endpoint, bucket.region, may_ask=True)

    def place(self) -> AreaRef:
        """Return the prefix itself."""
        return self._area(self._place, "", ())

    def create_area(self, run_id: str) -> AreaRef:
        """Say whose the run's prefix is, and try there what a run does. Raises UsageError, and then leaves nothing."""
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
                # By their keys: to list them may be just what is forbidden.
                with undisturbed():
                    for name in (TRIAL, OWNER):
                        with contextlib.suppress(OSError):
                            bucket.delete(f"{place.below}{name}")
                raise
        return area

    def leftovers(self) -> Sequence[Leftover]:
        """Return the prefixes of runs whose controller does not run on this host: it is gone, or elsewhere."""
        with contextlib.closing(self._bucket()) as bucket:
            try:
                folders = bucket.folders(f"{self._place.below}{RUN}")
                return [leftover for folder in folders if (leftover := self._leftover(bucket, folder))]
            except OSError as error:
                raise refusal(f"{self._name}: earlier runs cannot be looked for", error) from None

    def clean(self, area: AreaRef, names: Names, deadline_seconds: float, *, keep_area: bool = False) -> list[str]:
        """Remove what a run made, in a process of its own; return what was left, one sentence each."""
        asked = {
            "area": to_plain(dataclasses.replace(area, access=self._access)),
            "files": {subject: sorted(files) for subject, files in names.files.items()},
            "beside": {subject: sorted(files) for subject, files in names.beside.items()},
            "folders": sorted(names.folders),
            "keep_area": keep_area,
        }
        place = prefix_of(area)
        try:
            left: list[str] = call_in_time(CLEAN, asked, deadline_seconds)
        except NoAnswerError:
            silence = f"the store did not answer for {deadline_seconds:g} s"
            return [f"{place.url} stays: {silence}; {_by_hand(place, self._access)}"]
        except RefusedError as error:
            return [f"{place.url} was not removed: {error}; {_by_hand(place, self._access)}"]
        return left

    def _leftover(self, bucket: Bucket, folder: str) -> Leftover | None:
        try:
            owner = json.loads(bucket.get(f"{folder}{OWNER}"))
            run_id, host, alive = str(owner["run"]), str(owner["host"]), is_alive(owner)
            elsewhere = host_elsewhere(owner)
        except (FileNotFoundError, ValueError, LookupError, TypeError, OverflowError):
            return None
        if alive:
            return None
        place = dataclasses.replace(self._place, prefix=folder.rstrip("/"))
        uploads = len(bucket.uploads(folder))
        what = f"{place.url} with {uploads} unfinished uploads" if uploads else place.url
        command = place.removal(self._access)
        return Leftover(what=what, why=f"run {run_id} of {host}", command=command, elsewhere=elsewhere)

    def _area(self, place: BucketPrefix, run_id: str, identity: tuple[str, ...]) -> AreaRef:
        return AreaRef(
            scheme=place.scheme,
            location=place.url,
            run_id=run_id,
            opener=OPENER,
            identity=identity,
            access=self._access,
        )

    def _facts(self, server: str, endpoint: str, region: str, *, may_ask: bool = False) -> TargetFacts:
        near = {nearness_of(each, may_ask=may_ask) for each in self._access.endpoints or (endpoint,)}
        endpoint = ", ".join(self._access.endpoints) or endpoint
        found = (("endpoint", endpoint), ("region", region))
        options = ", ".join(f"{name} {value}" for name, value in found if value)
        return TargetFacts(
            location=self._place.url,
            kind=self._place.scheme,
            gate_kind="object" if near == {"elsewhere"} else "object-local",
            is_local=near == {"loopback"},
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

    def _remedy_of_look(self, endpoint: str, error: OSError) -> str:
        """Return what to do where a bucket cannot be listed; empty where the error itself knows."""
        code = error.code if isinstance(error, StoreError) else ""
        if code == "AccessDenied":
            return lacking(self._place.scheme, "s3:ListBucket")
        url = urllib.parse.urlsplit(endpoint)
        if code in _NOTHING_THERE and url.netloc.startswith(f"{self._place.bucket}."):
            without = f"{url.scheme}://{url.netloc.removeprefix(f'{self._place.bucket}.')}"
            return f"The endpoint names the bucket itself, and so does the target. Say --ckpt-endpoint={without}"
        if error.errno not in (errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPROTO):
            return ""
        where = ", ".join(self._access.endpoints) or "the endpoint of the profile, or the cloud's own"
        tls = " A certificate of your own goes into --ckpt-ca-bundle." if error.errno == errno.EPROTO else ""
        return f"Look whether this host reaches {where}, or name another with --ckpt-endpoint.{tls}"

    def _check_clock(self, date: str) -> None:
        found = email.utils.parsedate_tz(date)
        if found is None:
            return
        skew = time.time() - email.utils.mktime_tz(found)
        if abs(skew) > _MAXIMUM_SKEW_SECONDS:
            raise UsageError(
                f"{self._name}: the clock of this host is {abs(skew) / 60:.0f} minutes "
                f"{'ahead of' if skew > 0 else 'behind'} the store's.",
                "Set both by NTP: signed requests are refused after 15 minutes.",
            )

    def _check_versions(self, bucket: Bucket) -> None:
        """Refuse a bucket that keeps what is deleted; one that may not be asked is taken by the operator's word."""
        try:
            keeps = bucket.keeps_versions()
        except OSError as error:
            if error.errno != errno.EACCES or self._access.unversioned:
                # A store that does not know the question has no versions to keep.
                return
            raise UsageError(
                f"{self._name}: these credentials may not ask whether the bucket keeps versions.",
                f"Give them the permission {_ASKS_VERSIONS[self._place.scheme]}, or say --ckpt-unversioned if the "
                "bucket keeps nothing of what is deleted.",
            ) from None
        if keeps:
            raise keeps_versions(self._name)


def _by_hand(place: BucketPrefix, access: Access) -> str:
    return f"by hand: {place.removal(access)}"
