"""The Kubernetes manifests, tested without a cluster: they match their schemas, and their pods are complete."""

from __future__ import annotations

import copy
import subprocess

import jsonschema
import pytest
import yaml

from tests.support.manifests import DIRECTORY, MANIFESTS, filled, templates, values, variables

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="the extra 'test' has the schemas")

REFUSED = (jsonschema.ValidationError, kubernetes_validate.ValidationError)
FILLS_IN = r"""
cd "$1"; set -a; . ./values.env; set +a
envsubst "$(sed -n 's/^\(CKPT_[A-Z_]*\)=.*/$\1/p' values.env)" < "$2"
"""
KUBERNETES = "1.33"
"""Job.spec.successPolicy is stable from it on."""

_POLICY = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "cleanPodPolicy": {"enum": ["None", "Running", "All"]},
        "ttlSecondsAfterFinished": {"type": "integer"},
        "activeDeadlineSeconds": {"type": "integer"},
        "backoffLimit": {"type": "integer"},
        "suspend": {"type": "boolean"},
    },
}
_REPLICAS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["replicas", "template"],
    "properties": {
        "replicas": {"type": "integer", "minimum": 1},
        "restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
        "template": {"type": "object"},
    },
}
# The part of kubeflow.org/v2beta1's MPIJob that the manifests use. Kubernetes' own schema checks the pods.
MPI_JOB = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "kubeflow.org/v2beta1"},
        "kind": {"const": "MPIJob"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["mpiReplicaSpecs"],
            "properties": {
                "slotsPerWorker": {"type": "integer", "minimum": 1},
                "mpiImplementation": {"enum": ["OpenMPI", "Intel", "MPICH"]},
                "sshAuthMountPath": {"type": "string"},
                "launcherCreationPolicy": {"enum": ["AtStartup", "WaitForWorkersReady"]},
                "runLauncherAsWorker": {"type": "boolean"},
                "runPolicy": _POLICY,
                "mpiReplicaSpecs": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["Launcher", "Worker"],
                    "properties": {"Launcher": _REPLICAS, "Worker": _REPLICAS},
                },
            },
        },
    },
}


def check(document):
    if document["kind"] != "MPIJob":
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
        return
    jsonschema.validate(document, MPI_JOB)
    for template in templates(document):
        wrapped = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
        kubernetes_validate.validate(wrapped, KUBERNETES, strict=True)


def pods(name):
    return [t for document in filled(name, values()) for t in templates(document)]


JOBS = [name for name in MANIFESTS if name != "ssh.yaml"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_schemas_allow_it(name):
    documents = filled(name, values())
    assert documents
    for document in documents:
        check(document)


@pytest.mark.parametrize("name", JOBS)
def test_the_schemas_refuse_a_name_or_a_value_that_is_wrong(name):
    for change in (
        lambda t: t["spec"].update(automountServiceAccountTokens=False),
        lambda t: t["spec"]["containers"][0].update(image=7),
        lambda t: t["spec"]["containers"][0]["securityContext"].update(readOnlyRootFileSystem=True),
        lambda t: t["spec"]["volumes"][0].update(emptydir={}),
    ):
        document = copy.deepcopy(filled(name, values())[-1])
        change(next(iter(templates(document))))
        with pytest.raises(REFUSED):
            check(document)
    document = filled(name, values())[-1]
    document["spec"]["backofflimit"] = 1
    with pytest.raises(REFUSED):
        check(document)


def test_every_value_is_used_and_every_place_has_one():
    used = set().union(*(variables(DIRECTORY / name) for name in MANIFESTS))
    assert used == set(values())


@pytest.mark.parametrize("name", MANIFESTS)
def test_envsubst_fills_in_the_same_and_leaves_the_shell_its_own(name):
    try:
        done = subprocess.run(
            ["sh", "-euc", FILLS_IN, "sh", DIRECTORY, name], capture_output=True, text=True, check=True
        )
    except subprocess.CalledProcessError as error:
        if "envsubst" in error.stderr:
            pytest.skip("there is no envsubst")
        raise
    assert list(yaml.safe_load_all(done.stdout)) == filled(name, values())


@pytest.mark.parametrize("name", JOBS)
def test_pods_are_nobody_that_could_harm_a_node(name):
    for pod in pods(name):
        spec = pod["spec"]
        assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 1000)
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            held = container["securityContext"]
            assert (held["readOnlyRootFilesystem"], held["allowPrivilegeEscalation"]) == (True, False)
            assert held["capabilities"] == {"drop": ["ALL"]}
            assert container["image"] == values()["CKPT_IMAGE"]
            mounted = {m["name"] for m in container["volumeMounts"]}
            assert mounted == {v["name"] for v in spec["volumes"]}
            places = {m["mountPath"] for m in container["volumeMounts"]}
            # The root is read-only, so these directories need a volume; 64 MB of shared memory may be too little.
            assert {"/tmp", "/dev/shm"} <= places


@pytest.mark.parametrize("name", JOBS)
def test_each_pod_has_a_node_of_its_own(name):
    for pod in pods(name):
        (rule,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert rule["topologyKey"] == "kubernetes.io/hostname"
        assert rule["labelSelector"]["matchLabels"] == pod["metadata"]["labels"]


@pytest.mark.parametrize("kind", ["mpijob", "job"])
def test_a_bucket_takes_the_place_of_a_claim_and_its_secret_is_no_word_of_a_command(kind):
    for pod in pods(f"{kind}-claim.yaml"):
        assert {"name": "target", "mountPath": "/mnt/target"} in pod["spec"]["containers"][0]["volumeMounts"]
    launcher = pods(f"{kind}-bucket.yaml")[0]["spec"]["containers"][0]
    assert launcher["envFrom"] == [{"secretRef": {"name": values()["CKPT_SECRET"]}}]
    assert f"--ckpt-target={values()['CKPT_BUCKET']} " in launcher["command"][-1]
    assert all("target" not in {v["name"] for v in pod["spec"]["volumes"]} for pod in pods(f"{kind}-bucket.yaml"))
    (ssh,) = filled("ssh.yaml", values())
    assert "SendEnv AWS_*" in ssh["data"]["ssh_config"]
    assert "AcceptEnv AWS_*" in ssh["data"]["sshd_config"]


@pytest.mark.parametrize("name", JOBS)
def test_a_run_that_failed_is_not_started_again(name):
    """A failed run is not restarted, because each restart policy is "Never".

    For MPI jobs, the operator uses the restart policy of a replica, and ignores the policy in the replica's pod
    template. The default for a launcher is OnFailure.
    """
    *_, document = filled(name, values())
    spec = document["spec"]
    of_mpi = spec.get("mpiReplicaSpecs", {})
    assert spec.get("runPolicy", spec)["backoffLimit"] == 0
    assert {role: replica["restartPolicy"] for role, replica in of_mpi.items()} == dict.fromkeys(of_mpi, "Never")
    assert [pod["spec"].get("restartPolicy") for pod in pods(name)] == [None if of_mpi else "Never"] * len(pods(name))


def test_an_indexed_job_has_a_pod_for_pytest_besides_the_workers():
    assert int(values()["CKPT_PODS"]) == int(values()["CKPT_WORKERS"]) + 1
    *_, job = filled("job-claim.yaml", values())
    assert (job["spec"]["completionMode"], job["spec"]["backoffLimit"]) == ("Indexed", 0)
