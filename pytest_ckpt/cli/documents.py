"""The types of the JSON documents that commands print, each with the name of its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from pytest_ckpt.analysis.comparison import EncryptionCost
from pytest_ckpt.evidence.history import Line
from pytest_ckpt.evidence.verification import Examination, Signer
from pytest_ckpt.facts.bounds import Bounds, Count, CountFromOne, NotNegative, Positive, Share, Text
from pytest_ckpt.facts.measurement import Basis, OperationKind
from pytest_ckpt.facts.verdict import Grade, Outcome
from pytest_ckpt.grading.document import Cluster, ExitCode, Figure, Message, ReceivedBytes, Report
from pytest_ckpt.grading.goodput import ClusterSize
from pytest_ckpt.published.rules import EditionName, RuleResult
from pytest_ckpt.run.doctor import Finding


class Verified(TypedDict):
    """The output of pytest-ckpt verify DIRECTORY --json.

    ``signers`` lists the keys of the option --key in their order, and then other keys that signed the directory.
    """

    schema: Literal["pytest-ckpt/verify/1"]
    outcome: Literal["unchanged", "changed", "incomplete"]
    checks: Annotated[list[Examination], Bounds(min_length=4)]
    signers: list[Signer]


class Examined(TypedDict):
    """The output of pytest-ckpt doctor --json."""

    schema: Literal["pytest-ckpt/doctor/1"]
    can_run: bool
    findings: Annotated[list[Finding], Bounds(min_length=1)]


class ComparedRun(TypedDict):
    """One of the two runs of a comparison."""

    id: str
    started: str
    grade: Grade
    exit_code: ExitCode | None


class Difference(TypedDict):
    """A value that differs between two runs.

    ``before`` is null if the first run does not have the value; ``after`` is null if the second run does not have it.
    """

    name: str
    before: Any
    after: Any


class ComparedVerdict(TypedDict):
    """A verdict that differs between two runs.

    ``before`` is null if the first run does not have the verdict; ``after`` is null if the second run does not have it.
    """

    id: str
    subject: str
    before: Outcome | None
    after: Outcome | None
    because: str


class Times(TypedDict):
    """The times of one kind of operation (saves or loads) of one run. ``count`` is the number of operations."""

    count: CountFromOne
    fastest_seconds: Positive
    median_seconds: Positive
    slowest_seconds: Positive


class ComparedOperations(TypedDict):
    """One kind of operation (saves or loads) in two runs: ``before`` is the first run, ``after`` the second run.

    ``ratio`` is the median time of the second run divided by the median time of the first run. If ``ratio`` is above 1,
    the second run is slower. ``low`` and ``high`` are the ends of the 95 % interval of the ratio. Both are null if a
    run has fewer than 5 operations.
    """

    subject: Text
    kind: OperationKind
    before: Times | None
    after: Times | None
    ratio: Positive | None
    low: Positive | None
    high: Positive | None
    change: Literal["slower", "faster", "none", "unknown"]
    note: str


class CountedRequests(TypedDict):
    """Numbers and times of requests of one kind in one run.

    ``sent`` counts all requests. ``again`` counts the requests that were repeated after an error or no answer.
    ``busy`` counts the answers with status 503 or 429. ``p99_seconds`` (99th percentile) and ``slowest_seconds`` are
    the values of the slowest endpoint.
    """

    sent: Count
    again: Count
    busy: Count
    p99_seconds: NotNegative | None
    slowest_seconds: NotNegative | None


class ComparedRequests(TypedDict):
    """Requests of one kind to an object store in two runs, over all endpoints.

    ``before`` is null if the first run has no such requests; ``after`` is null if the second run has none.
    """

    subject: Text
    kind: str
    before: CountedRequests | None
    after: CountedRequests | None


class Comparison(TypedDict):
    """The output of pytest-ckpt diff BEFORE AFTER --json.

    ``encryption``, the cost of encryption, exists only with --encryption. ``notices`` are sentences about the two run
    directories.
    """

    schema: Literal["pytest-ckpt/diff/1"]
    before: ComparedRun
    after: ComparedRun
    settings: list[Difference]
    cluster: list[Difference]
    system: list[Difference]
    environment: list[Difference]
    versions: list[Difference]
    verdicts: list[ComparedVerdict]
    operations: list[ComparedOperations]
    requests: NotRequired[list[ComparedRequests]]
    encryption: NotRequired[EncryptionCost]
    notices: list[str]


class Point(TypedDict):
    """One run in a series: the median and the slowest time of its saves or loads, and their time limit."""

    id: str
    started: str
    grade: str
    median_seconds: Positive
    slowest_seconds: Positive
    limit_seconds: Positive


class Change(TypedDict):
    """A change in a series: the newest ``runs`` runs differ from the ``before`` runs that precede them.

    ``ratio`` is the newer median divided by the older median. ``probability`` is the probability of such a difference
    without a real change.
    """

    since: str
    runs: CountFromOne
    before: CountFromOne
    ratio: Positive
    probability: Share


class Series(TypedDict):
    """One kind of operation (saves or loads) of one workload, in many runs under the same conditions.

    ``can_show`` is true if the series has enough runs to detect a change. ``omitted`` maps each reason to the number of
    runs that are left out for this reason.
    """

    subject: Text
    kind: OperationKind
    conditions: dict[str, Any]
    points: list[Point]
    change: Change | None
    can_show: bool
    omitted: dict[str, Count]


class RequestPoint(TypedDict):
    """One run in a series: the 99th percentile of the request times at the slowest endpoint of this run."""

    id: str
    started: str
    p99_seconds: Positive


class RequestSeries(TypedDict):
    """One kind of request to an object store in many runs.

    ``can_show`` is true if the series has enough runs to detect a change.
    """

    subject: Text
    kind: Text
    points: list[RequestPoint]
    change: Change | None
    can_show: bool


class Trend(TypedDict):
    """The output of pytest-ckpt trend DIRECTORY --json.

    ``regression`` is the limit of --fail-on-regression as a share; null without this option. ``regressions`` lists the
    series that became slower by this share or more. If the list has entries, the exit code is 1.
    """

    schema: Literal["pytest-ckpt/trend/1"]
    runs: Count
    notices: list[str]
    regression: Annotated[float, Bounds(gt=0, le=1)] | None
    regressions: list[str]
    series: list[Series]
    requests: NotRequired[list[RequestSeries]]


class PublishedResult(TypedDict):
    """The judgement of one published result (one system, one model). A published result is never certified.

    ``outcomes`` maps the id of a requirement to its outcome. ``signs`` are sentences on loads that were possibly read
    from a cache.
    """

    system: str
    subject: Text
    model: str
    mode: Literal["full", "subset", "open"]
    processes: CountFromOne
    basis: Basis
    runs: Annotated[list[str], Bounds(min_length=1)]
    figures: Annotated[list[Figure], Bounds(min_length=2, max_length=2)]
    signs: list[str]
    network: ReceivedBytes | None
    outcomes: dict[str, Outcome]
    verdict: str
    grade: Literal["not certified", "incomplete", "rehearsal"]
    grade_reasons: list[str]
    sufficient_up_to_accelerators: ClusterSize
    exit_code: Literal[1, 8]


class PublishedTree(TypedDict):
    """The output of pytest-ckpt judge TREE --json, for a tree with more than one result.

    ``runs`` counts the run directories that were read. ``passed_over`` counts the run directories of other benchmarks.
    Both counts omit directories of the commands datasize and datagen, which do not measure.
    """

    schema: Literal["pytest-ckpt/published/1"]
    version: str
    tree: str
    cluster: Cluster
    results: Annotated[list[PublishedResult], Bounds(min_length=2)]
    messages: list[Message]
    runs: Count
    passed_over: Count
    exit_code: Literal[1, 8]


class CheckedResult(TypedDict):
    """A published result with the outcome of each submission rule.

    ``division`` is the division of the submission. If the directory names do not contain the division, the text is
    empty.
    """

    system: str
    subject: str
    division: str
    runs: Annotated[list[str], Bounds(min_length=1)]
    rules: Annotated[list[RuleResult], Bounds(min_length=1)]


class Rules(TypedDict):
    """The output of pytest-ckpt judge --rules --json: published results with the outcome of each submission rule."""

    schema: Literal["pytest-ckpt/rules/1"]
    version: str
    edition: EditionName
    source: str
    tree: str
    results: Annotated[list[CheckedResult], Bounds(min_length=1)]
    messages: list[Message]
    runs: CountFromOne
    passed_over: Count
    exit_code: Literal[0, 1, 8]


DOCUMENTS: Mapping[str, type[Any]] = {
    "report": Report,
    "history": Line,
    "trend": Trend,
    "diff": Comparison,
    "verify": Verified,
    "doctor": Examined,
    "published": PublishedTree,
    "rules": Rules,
}
