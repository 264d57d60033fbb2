"""Small jobs that save with installed libraries. The built-in patterns are recordings of these jobs.

    python -m tests.support.library_jobs [NAME ...]

This command records the patterns again into ``templates/job_patterns``.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pytest_ckpt.config.pattern_files import SHIPPED
from tests.support import CHECKOUT

# Two ranks are forked from a process that has imported the library, because the import takes most of the time.
FRAME = """
import multiprocessing, os, sys, tempfile
{imports}
directory = sys.argv[1] + "/checkpoint"

def rank_of(rank, meeting):
    {joins}
    elements = 1 << 20
    state = {{f"rank{{rank}}.layer{{n}}": full((elements + n,), float(rank), dtype=float32) for n in range(3)}}
    {saves}

if __name__ == "__main__":
    os.makedirs(directory)
    with tempfile.TemporaryDirectory() as meeting:
        ranks = [multiprocessing.get_context("fork").Process(target=rank_of, args=(n, meeting)) for n in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        sys.exit(max(rank.exitcode for rank in ranks))
"""
_TORCH = "import torch; from torch import float32, full"
_DIST = f"{_TORCH}; import torch.distributed as dist"
_DCP = f"{_DIST}, torch.distributed.checkpoint as dcp"
_WITHOUT_GPU = """if not torch.cuda.is_available():
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
"""
_GLOO = 'dist.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=rank, world_size=2)'
_HUGGING_FACE = """places = {f"rank{r}.layer{n}": 1 for r in range(2) for n in range(3)}
    dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(directory, places, save_distributed=True))"""
# Lightning writes into the temporary directory and moves the file. To storage, another file system, this is a copy.
_LIGHTNING = """
import sys
import torch, lightning
from lightning.pytorch.callbacks import ModelCheckpoint

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ParameterList(torch.zeros((1 << 20) + n) for n in range(3))

    def training_step(self, batch, number):
        return sum(layer.mean() for layer in self.layers)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

saver = ModelCheckpoint(dirpath=sys.argv[1] + "/checkpoint", every_n_train_steps=1)
quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False)
trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=1, callbacks=[saver], **quiet)
trainer.fit(Model(), torch.utils.data.DataLoader([torch.zeros(1)] * 2))
"""
_TRAINER = """
import sys
import torch
from transformers import Trainer, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ParameterList(torch.zeros((1 << 20) + n) for n in range(3))

    def forward(self, step, labels=None):
        return {"loss": sum(layer.mean() for layer in self.layers) + step.sum()}

quiet = dict(report_to=[], use_cpu=True, disable_tqdm=True)
arguments = TrainingArguments(sys.argv[1] + "/checkpoint", max_steps=1, save_steps=1, save_strategy="steps", **quiet)
Trainer(model=Model(), args=arguments, train_dataset=[{"step": torch.zeros(1)}] * 8).train()
"""
# With several arrays, their timing would decide how many are in one commit of the database, so there is only one.
# Orbax compresses, so the array contains random numbers.
_ORBAX = """
import sys
import numpy
import orbax.checkpoint

numbers = numpy.random.default_rng(1).integers(0, 1 << 30, 3 << 20, dtype=numpy.int32)
state = {"layer": numbers.view(numpy.float32)}
saver = orbax.checkpoint.StandardCheckpointer()
saver.save(sys.argv[1] + "/checkpoint", state)
saver.wait_until_finished()
saver.close()
"""
_TENSORFLOW = """
import os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import tensorflow

state = tensorflow.train.Checkpoint(
    **{f"layer{n}": tensorflow.Variable(tensorflow.zeros([(1 << 20) + n])) for n in range(3)}
)
tensorflow.train.CheckpointManager(state, sys.argv[1] + "/checkpoint", max_to_keep=3).save()
"""
# On CPUs, DeepSpeed would first compile its shared-memory communication for minutes; gloo is sufficient.
_DEEPSPEED = """import os, sys
os.environ["DS_ACCELERATOR"] = "cpu"
import torch, deepspeed, deepspeed.comm.torch
from torch import float32, full

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ParameterList(torch.zeros((1 << 20) + 2 * n) for n in range(3))

    def forward(self):
        return sum(layer.mean() for layer in self.layers)

sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
"""
_DEEPSPEED_JOINS = """os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_SIZE="2")
    store = dict(init_method=f"file://{meeting}/store", rank=rank, world_size=2)
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, **store)"""
_DEEPSPEED_SAVES = """model = Model()
    settings = dict(train_micro_batch_size_per_gpu=1, zero_allow_untested_optimizer=True)
    settings["zero_optimization"] = dict(stage=STAGE)
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=settings)
    engine.backward(engine())
    engine.step()
    engine.save_checkpoint(directory, tag="step")"""
# Megatron waits for a GPU before it saves, and its ranks communicate through GPU memory. Without a GPU, the host's
# memory is used.
_MEGATRON = f"""{_DIST}
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing import ShardedTensor
{_WITHOUT_GPU}"""
_MEGATRON_SAVES = """parts = {
        f"layer{n}": ShardedTensor.from_rank_offsets(f"layer{n}", full(((1 << 20) + n,), float(rank)), (0, rank, 2))
        for n in range(3)
    }
    dist_checkpointing.save({**parts, "iteration": 1}, directory)"""
# NVRx waits for a GPU before it starts the process that saves, and asks by GPU memory whether all ranks are done.
_NVRX_ASYNC = f"""{_DIST}
from nvidia_resiliency_ext.checkpointing.async_ckpt.torch_ckpt import TorchAsyncCheckpoint
{_WITHOUT_GPU}"""
_NVRX_ASYNC_SAVES = """saver = TorchAsyncCheckpoint(persistent_queue=False)
    saver.async_save(state, f"{directory}/rank{rank}.pt")
    saver.finalize_async_save(blocking=True, no_dist=False)"""
# The tensors of a local checkpoint of NVRx must be on a GPU when it is created.
_NVRX_LOCAL = f"""{_DIST}
from nvidia_resiliency_ext.checkpointing.local.basic_state_dict import BasicTensorAwareStateDict
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import LocalCheckpointManager

class OnHost(BasicTensorAwareStateDict):
    def __init__(self, state):
        self.state_dict, self._is_hollow = state, False
"""
_TORCHTITAN = f"""{_DIST}
from torchtitan.components.checkpoint import CheckpointManager

class Model(torch.nn.Module):
    def __init__(self, state):
        super().__init__()
        for name, tensor in state.items():
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(tensor))
"""
_TORCHTITAN_SAVES = """settings = CheckpointManager.Config(enable=True, interval=1, async_mode="MODE")
    none = dict(dataloader=None, optimizers=None, lr_schedulers=None, states={}, sd_adapter=None)
    saver = CheckpointManager(settings, model_parts=[Model(state)], base_folder=directory, **none)
    saver.save(1)
    saver.maybe_wait_for_saving()
    saver.close()"""
_OF_ONE_PROCESS = {"lightning": _LIGHTNING, "trainer": _TRAINER, "orbax": _ORBAX, "tensorflow": _TENSORFLOW}
_OTHER_FILE_SYSTEM = "/dev/shm"
JOBS = {
    "torch-save": (
        "torch", "torch.save by each rank", _TORCH, "pass", 'torch.save(state, f"{directory}/rank{rank}.pt")'
    ),
    "dcp": ("torch", "torch.distributed.checkpoint.save", _DCP, _GLOO, "dcp.save(state, checkpoint_id=directory)"),
    "dcp-async": (
        "torch", "torch.distributed.checkpoint.async_save", _DCP, _GLOO,
        "dcp.async_save(state, checkpoint_id=directory).result()",
    ),
    "dcp-threads": (
        "torch", "torch.distributed.checkpoint.save, thread_count=2", _DCP, _GLOO,
        "dcp.save(state, storage_writer=dcp.FileSystemWriter(directory, thread_count=2))",
    ),
    "safetensors": (
        "safetensors", "safetensors.numpy.save_file by each rank",
        "from numpy import float32, full; from safetensors.numpy import save_file", "pass",
        'save_file(state, f"{directory}/model-{rank}.safetensors")',
    ),
    "hugging-face": (
        "torch", "torch.distributed.checkpoint with HuggingFaceStorageWriter, save_distributed", _DCP, _GLOO,
        _HUGGING_FACE,
    ),
    "deepspeed-zero1": (
        "deepspeed", "save_checkpoint, ZeRO stage 1", _DEEPSPEED, _DEEPSPEED_JOINS,
        _DEEPSPEED_SAVES.replace("STAGE", "1"),
    ),
    "deepspeed-zero3": (
        "deepspeed", "save_checkpoint, ZeRO stage 3", _DEEPSPEED, _DEEPSPEED_JOINS,
        _DEEPSPEED_SAVES.replace("STAGE", "3"),
    ),
    "megatron": (
        "megatron-core", "dist_checkpointing.save, torch_dist", _MEGATRON, _GLOO, _MEGATRON_SAVES,
    ),
    "nvrx-async": (
        "nvidia-resiliency-ext", "TorchAsyncCheckpoint.async_save", _NVRX_ASYNC, _GLOO, _NVRX_ASYNC_SAVES,
    ),
    "nvrx-local": (
        "nvidia-resiliency-ext", "LocalCheckpointManager.save without replication", _NVRX_LOCAL, _GLOO,
        "LocalCheckpointManager(directory).save(OnHost(state), 1)",
    ),
    "torchtitan": (
        "torchtitan", "CheckpointManager.save", _TORCHTITAN, _GLOO, _TORCHTITAN_SAVES.replace("MODE", "disabled"),
    ),
    "torchtitan-async": (
        "torchtitan", "CheckpointManager.save, async_mode async", _TORCHTITAN, _GLOO,
        _TORCHTITAN_SAVES.replace("MODE", "async"),
    ),
    "tensorflow": ("tensorflow", "CheckpointManager.save, one process", "", "", ""),
    "lightning": ("lightning", "Trainer with ModelCheckpoint, one process", "", "", ""),
    "trainer": ("transformers", "Trainer of Hugging Face, one process", "", "", ""),
    "orbax": ("orbax-checkpoint", "StandardCheckpointer, one array, one process", "", "", ""),
}  # fmt: skip


def script_of(name: str) -> str:
    """Return the source code of a job. The job's command-line argument is the directory for saves."""
    if name in _OF_ONE_PROCESS:
        return _OF_ONE_PROCESS[name]
    _, _, imports, joins, saves = JOBS[name]
    return FRAME.format(imports=imports, joins=joins, saves=saves)


def is_installed(package: str) -> bool:
    """Return whether a package is installed."""
    return any(importlib.metadata.distributions(name=package))


def installed_version(package: str) -> str:
    """Return the version of the package that contains the importable name ``package``."""
    names = importlib.metadata.packages_distributions().get(package, [package])
    return importlib.metadata.version(names[0])


def record_job(name: str, directory: Path) -> Path:
    """Record the job ``name`` with ``pytest-ckpt record``; return the file with the recorded pattern."""
    package, what, *_ = JOBS[name]
    job, under, out = directory / "job.py", directory / "saved", directory / f"{name}.json"
    job.write_text(script_of(name))
    under.mkdir()
    label = f"{package} {installed_version(package)}, {what}"
    words = ["record", "--under", str(under), "--out", str(out), "--label", label, "--no-pauses", "--", sys.executable]
    command = [sys.executable, "-m", "pytest_ckpt.cli.main", *words, str(job), str(under)]
    elsewhere = {"TMPDIR": _OTHER_FILE_SYSTEM} if name == "lightning" else {}
    where = {**os.environ, **elsewhere}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT, env=where)
    assert done.returncode == 0, done.stderr
    return out


def main() -> None:
    """Record the jobs that the command line names, or all jobs."""
    for name in sys.argv[1:] or SHIPPED:
        with tempfile.TemporaryDirectory() as directory:
            made = record_job(name, Path(directory))
            (CHECKOUT / "templates" / "job_patterns" / made.name).write_text(made.read_text())


if __name__ == "__main__":
    main()
