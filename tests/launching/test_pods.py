"""The commands of the Kubernetes manifests, run in simulated pods, as an ordinary user and with a read-only root."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.end_to_end import TINY
from tests.support.file_systems.mounting import missing
from tests.support.machine import need_fuse
from tests.support.manifests import filled, templates, values
from tests.support.pod import PROGRAMS, Ended, Pod, run_pods

pytestmark = pytest.mark.thorough

NAME = "ckpt-acceptance"
OF_POD = values(
    CKPT_WORKERS="2",
    CKPT_PODS="3",
    CKPT_RANKS="1",
    CKPT_SHARED_MEMORY="64Mi",
    CKPT_OPTIONS=" ".join((*TINY, "--ckpt-ranks=2", "--ckpt-engine=stream", "--ckpt-gate-table=speed-only")),
    CKPT_CLUSTER="1",
)
KEYS = "/home/ckpt/.ssh"


@pytest.fixture
def home(create_home: Callable[[str], Path]) -> Path:
    need_fuse()
    if lacking := missing(PROGRAMS):
        pytest.skip(f"there is no {', '.join(lacking)}")
    return create_home("pods")


def config() -> dict[str, str]:
    (ssh,) = filled("ssh.yaml", OF_POD)
    data: dict[str, str] = ssh["data"]
    return data


def mpi_job() -> list[Pod]:
    """Return the pods that the MPI Operator creates for an MPIJob: the launcher and two workers.

    The pods have the host file and the host names that the operator sets.
    """
    (job,) = filled("mpijob-claim.yaml", OF_POD)
    launcher, worker = templates(job)
    names = [f"{NAME}-worker-{number}" for number in range(2)]
    hosts = "".join(f"{name}.{NAME}.default.svc slots=1\n" for name in names)
    return [
        Pod(name=f"{NAME}-launcher", template=launcher, files={"/etc/mpi/hostfile": hosts}),
        *(Pod(name=name, other_names=(f"{name}.{NAME}.default.svc",), template=worker) for name in names),
    ]


def indexed_job() -> list[Pod]:
    *_, job = filled("job-claim.yaml", OF_POD)
    (template,) = templates(job)
    return [
        Pod(
            name=f"{NAME}-{number}",
            other_names=(f"{NAME}-{number}.{NAME}",),
            template=template,
            environment={"JOB_COMPLETION_INDEX": str(number)},
        )
        for number in range(3)
    ]


@pytest.mark.parametrize("pods", [mpi_job, indexed_job])
def test_a_launcher_pod_measures_from_its_worker_pods(pods: Callable[[], list[Pod]], home: Path) -> None:
    made = pods()
    ended: Ended = run_pods(home, made, config(), KEYS)
    assert ended.code == 0, ended.text
    report = home / "claims" / OF_POD["CKPT_REPORT_CLAIM"] / NAME
    document = json.loads((report / "report.json").read_text())
    assert document["grade"] == "rehearsal"
    assert all(v["outcome"] == "met" for v in document["requirements"] if v["severity"] == "required")
    (measurement,) = document["measurements"]
    assert measurement["hosts"] == [pod.name for pod in made[1:]]
    assert list((home / "claims" / OF_POD["CKPT_CLAIM"]).iterdir()) == []
