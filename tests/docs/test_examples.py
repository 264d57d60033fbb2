"""The examples on pages give the shown results. A comment above an untested example gives the reason."""

from __future__ import annotations

import configparser
import json
import re
import tomllib

import pytest
import yaml

from tests.support.doc_examples import Commands, follow, resembles
from tests.support.doc_pages import CHECKOUT, DOCS, PAGES, blocks

README_COMMAND = re.compile(r"command: \w+")
TRIED = re.compile(r"runs(, exit \d+)?|prints( exactly)?|says|writes \S+|shows \S+|tried by tests/\S+|not run: .+")
PARSERS = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
    "ini": lambda text: configparser.ConfigParser(interpolation=None).read_string(text),
    "python": lambda text: compile(text, "example", "exec"),
}
# Examples that no test runs. Each entry is a decision, as readers have to trust the example.
NOT_RUN = {
    "evidence.md": ["pytest-ckpt diff ckpt-report-off ckpt-report-on --encryption"],
    "first_run.md": ["python3 -m venv .venv"],
    "several_hosts.md": [
        "  ERROR: --ckpt-target /mnt/array/ckpt is not the same on every host: h2: tmpfs (local) instead of "
        "fuse (mfs#10.99.0.1:9421), the file that pytest made is not",
        "MPICC=/opt/openmpi/bin/mpicc pip install --no-binary=mpi4py --force-reinstall --no-deps mpi4py",
        "   pytest --ckpt-target=/mnt/array/ckpt --cluster=16000 --ckpt-hosts=node1:8,node2:8 --ckpt-model=llama3-8b "
        "--ckpt-profile=smoke",
        "   pytest --ckpt-target=/mnt/array/ckpt --cluster=16000 --ckpt-hosts=@hosts --ckpt-model=llama3-70b "
        "--ckpt-operations=2",
        "   sbatch --nodes=128 slurm.sbatch",
        "   sed -i 's/^CKPT_WORKERS=.*/CKPT_WORKERS=128/' values.env",
    ],
    "slurm.md": [
        "export CKPT_BIN=/opt/ckpt/bin",
        "ckpt note: the launcher placed ranks differently from --ckpt-hosts: 3 on h2, 1 on h3 instead of 2 on h2, 2 "
        "on h3; set the place of each rank with",
        "sbatch --nodes=2 --ntasks-per-node=8 : --nodes=2 --ntasks-per-node=4 --exclusive --mem=0 slurm.sbatch",
    ],
    "containers.md": [
        "cd docs/recipes/kubernetes",
        "kubectl create secret generic ckpt-objects --from-literal=AWS_ACCESS_KEY_ID=… "
        "--from-literal=AWS_SECRET_ACCESS_KEY=…",
        "ssh-keygen -q -t ed25519 -N '' -f id_rsa && cp id_rsa.pub authorized_keys",
    ],
    "how_often_wrong.md": ["python benchmarks/acceptance_study.py --raw docs/how_often_wrong.json"],
    "model_arrays.md": ["CKPT_UPDATE_MODEL_ARRAYS=1 pytest --all tests/end_to_end/test_run_on_model_arrays.py"],
    "mlperf_v3.md": ["pytest-ckpt judge storage_results_v3.0/closed --cluster=16000"],
    "nightly.md": ["python3 -m venv /opt/ckpt"],
    "rfp.md": [
        "pytest-ckpt doctor --ckpt-target=/mnt/array/ckpt --cluster=16000 --ckpt-hosts=@hosts "
        "--ckpt-gate-table=rfp-gates.toml",
        "pytest-ckpt verify vendor-a/ckpt-report --key vendor-a.pub.pem",
    ],
    "object_stores.md": [
        "pip install 'pytest-ckpt[objects]'",
        "python -m pytest_ckpt.conformance.objects OBJECT-CREATE.put --target=s3://checkpoints/acceptance "
        "--endpoint=https://s3.array.example:9000",
        "pytest --ckpt-target=s3://checkpoints/acceptance --ckpt-endpoint=https://gw1.array.example:9000,"
        "https://gw2.array.example:9000 --cluster=16000 \\",
    ],
    "azure_and_google.md": [
        "export AZURE_STORAGE_ACCOUNT=… AZURE_STORAGE_KEY=…",
        "pip install 'pytest-ckpt[gcs]'",
    ],
    "file_systems.md": [
        "apt-get install xfsprogs btrfs-progs exfat-fuse exfatprogs ntfs-3g fuse2fs bindfs gocryptfs mergerfs sshfs "
        "openssh-sftp-server \\"
    ],
    "nfs.md": ["apt-get install user-mode-linux nfs-kernel-server kmod iproute2 e2fsprogs util-linux gcc libc6-dev"],
}
WITH_COMMANDS = [page for page in PAGES if any(b.comment.startswith("runs") for b in blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_example_has_a_comment_on_how_it_is_tried(page):
    for block in blocks(page):
        if block.language.startswith("{") or README_COMMAND.fullmatch(block.comment):
            continue  # a directive of Sphinx, or a command that .ci/run takes from the README
        if TRIED.fullmatch(block.comment):
            if block.comment.startswith("tried by "):
                assert page.name in (CHECKOUT / block.comment.removeprefix("tried by ")).read_text()
            continue
        assert block.language in PARSERS, f"{block.where}: say above it how it is tried: {block.comment or 'nothing'}"
        PARSERS[block.language](block.text)


def test_the_commands_that_are_not_run_are_exactly_those_listed():
    found: dict[str, list[str]] = {}
    for block in (b for page in PAGES for b in blocks(page)):
        if block.comment.startswith("not run: "):
            found.setdefault(block.page.name, []).append(block.text.split("\n")[0])
    assert found == NOT_RUN


@pytest.mark.parametrize("block", [b for p in PAGES for b in blocks(p) if b.comment.startswith("shows ")],
                         ids=lambda block: block.where)  # fmt: skip
def test_a_file_is_shown_as_it_lies_beside_the_page(block):
    assert block.text == (DOCS / block.comment.removeprefix("shows ")).read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_the_commands_of_a_page_do_what_the_page_promises(page, create_home):
    wrong = list(follow(blocks(page), Commands(create_home("examples"))))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("shown", "printed", "exactly"),
    [
        ("a 1 b\n", "a 1 b\n", True),
        ("save  529 ms,  213 MB/s\n", "save 1.2 s, 12 MB/s\n", False),
        ("first\n…\nlast\n", "first\nlast\n", True),
        ("first\n…\nlast\n", "first\na\nb\nlast\n", True),
        ("run … of\n", "run 20261121T051649-0660df of\n", True),
        ("at …, 5 s\n", "at 2026-11-21T09:11:03+00:00, 1.5 s\n", False),
        ("llama3-8b-full   +92 %   842*\n", "llama3-8b-full -3.1 % 8,842*\n", False),
        ("load  482 ms  111 ms 4.33 x limit  1.01 GB/s\n", "load  200 ms  111 ms  -79 %  1.01 GB/s\n", False),
        ("save 1, most of it in write on rank 7.\n", "save 2, most of it in fsync on rank 4.\n", False),
        ("most of it on rank 7. …\n", "most of it on rank 4.\n", False),
        ("not run: A of B: it\n  was not chosen\n", "not run: A of\n  B: it was not chosen\n", False),
        ("=== summary ===\n", "=========== summary ==========\n", False),
        ("verdicts  holds  41 verdicts follow\n", "verdicts  holds  39 verdicts follow\n", False),
        ("behaviour checks: 25 met\n", "behaviour checks: 24 met\n", False),
    ],
)
def test_the_same_with_other_figures_resembles(shown, printed, exactly):
    assert resembles(shown, printed, exactly=exactly)


@pytest.mark.parametrize(
    ("shown", "printed", "exactly"),
    [
        ("a 1 b\n", "a 2 b\n", True),
        ("3 met\n", "3 failed\n", False),
        ("llama3-8b-full\n", "llama3-70b-full\n", False),
        ("first\n…\nlast\n", "first\nlast\nmore\n", True),
        ("run … of\n", "run a\nof\n", True),
        ("", "something\n", True),
    ],
)
def test_another_text_does_not(shown, printed, exactly):
    assert not resembles(shown, printed, exactly=exactly)


def test_an_example_that_is_wrong_is_found(create_home, tmp_path):
    page = DOCS / "example.md"  # only its name is used, the file does not exist
    text = "<!-- runs, exit 3 -->\n```sh\necho 5 s; exit 3\n```\n<!-- prints -->\n```text\n{}\n```\n"
    (tmp_path / "page.md").write_text(text.format("7 s"))
    found = [type(b)(page=page, line=b.line, language=b.language, comment=b.comment, text=b.text)
             for b in blocks(tmp_path / "page.md")]  # fmt: skip
    assert not list(follow(found, Commands(create_home("examples"))))
    for wrong in (found[0].text.replace("exit 3", "exit 4"), found[0].text.replace("echo", "echo more")):
        changed = type(found[0])(page=page, line=1, language="sh", comment=found[0].comment, text=wrong)
        assert list(follow([changed, found[1]], Commands(create_home("examples"))))
