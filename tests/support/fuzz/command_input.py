"""Attacks on the inputs of the commands size, simulate, project, plan and show.

Inputs are options, run directories, and files that describe a model, a table or a job.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random

from pytest_ckpt.config import library_models
from pytest_ckpt.support.resources import directory as resources
from tests.support import synthetic_run
from tests.support.fuzz.families import Family, python_jargon
from tests.support.fuzz.mutations import bloated, change_bytes, change_json, mutate, replaced
from tests.support.fuzz.user_input import changed_line, create_paths, value_of

_SIZE = {
    "--cluster": "1000,16000", "--ckpt-model": "llama3-8b,llama3-405b", "--retain": "3", "--keep-daily": "30",
    "--copies": "2", "--usable-capacity": "500TB", "--write-amplification": "1.5", "--erasure-overhead": "25%",
    "--save-time": "30s", "--load-time": "60s", "--table": "superpod-h100", "--ckpt-save-budget": "5%",
    "--ckpt-load-budget": "1h", "--ckpt-checkpoints-per-failure": "20", "--ckpt-failures": "llama3",
    "--drain-every": "10", "--target-share": "10%", "--ckpt-parallel": "tp=8,pp=4,dp=2", "--html": "page",
}  # fmt: skip
_SIMULATE = {
    "--cluster": "1000,16000", "--days": "3", "--runs": "5", "--seed": "7", "--restart-time": "30s",
    "--interval": "10min", "--arrivals": "weibull:0.7", "--ckpt-save-budget": "5%", "--ckpt-failures": "llama3",
    "--html": "page",
}  # fmt: skip
_PROJECT = {"--clients": "128", "--client-rate": "12.5GB", "--ceiling": "1TB"}
_OTHERS = ("rule", "best", "exponential", "bursts:20%", "weibull:", "weibull:1e-300", "weibull:nan", "0s",
           "bursts:101%", "1e308s", "0x10", "16000,16000", ",", "1" + ",2" * 200, "tp=0", "tp=8,tp=8", "=",
           "zero=9")  # fmt: skip
_CODES = (0, 4)


class FigureOptions(Family):
    """Attacks on options of the commands size, simulate and project, and on run directories.

    Only simulate and project read run directories.
    """

    name = "figures"

    def prepare(self, originals: Path) -> None:
        self.directories = []
        for ranks in (1, 2, 4, 8):
            directory = originals / f"ranks-{ranks}"
            options = {"ckpt_ranks": str(ranks)}
            synthetic_run.write_run(
                directory, save=0.4 / ranks, load=0.2 / ranks, noise=0.01, seed=ranks, options=options
            )
            self.directories.append(directory)

    def attempt(self, rng: Random, home: Path) -> tuple[list[str], list[str]]:
        (home / "out").mkdir()
        create_paths(home)
        command = rng.choice(["size", "size", "simulate", "project"])
        words, done = [command], []
        if command == "size":
            words += ["--cluster=16000", *self._some(rng, home, _SIZE)]
        else:
            directories = rng.sample(self.directories, rng.choice([1, 3, 4]))
            if rng.random() < 0.6:
                changed = home / "run"
                shutil.copytree(directories[0], changed)
                (home / "outside").mkdir()
                (home / "outside" / "file").write_text("{}")
                done = mutate(rng, changed, home / "outside")
                directories[0] = changed
            words += map(str, directories)
            words += ["--clients=128"] if command == "project" else ["--runs=5", "--days=3"]
            # With valid options, more of the changed directory is read.
            words += self._some(rng, home, _PROJECT if command == "project" else _SIMULATE) if not done else []
        words += rng.choice([[], ["--json"]])
        found: list[str] = []
        outcome = self.command(words, home, _CODES, found)
        found += [f"{words!r:.300}: it says {word!r}" for word in python_jargon(outcome.err)]
        return [*done, *words], found

    def _some(self, rng: Random, home: Path, options: Mapping[str, str]) -> list[str]:
        words = []
        for flag in rng.sample(sorted(options), min(len(options), rng.choice([1, 1, 2, 3]))):
            if flag == "--html":
                words.append(f"{flag}={home / 'out' / 'page.html'}")
            else:
                value = rng.choice(_OTHERS) if rng.random() < 0.2 else value_of(rng, home, options[flag])
                words.append(f"{flag}={value}")
        return words


_MODEL = """layers = 4
hidden = 256
feed_forward = 688
vocabulary = 1000
heads = 4
key_value_heads = 2
tied_embeddings = true

[experts]
count = 8
active = 2
feed_forward = 128

[latent_attention]
query_rank = 64
key_value_rank = 32
rope_size = 16
value_size = 32

[precision]
weights = "bfloat16"
optimizer = "float32"

[parallel]
data = 2
zero = 3
"""
_CONFIG = {
    "model_type": "deepseek_v3", "num_hidden_layers": 6, "hidden_size": 512, "intermediate_size": 1024,
    "vocab_size": 1000, "num_attention_heads": 8, "num_key_value_heads": 8, "q_lora_rank": 64, "kv_lora_rank": 32,
    "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32, "n_routed_experts": 8, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "moe_intermediate_size": 128, "first_k_dense_replace": 1, "topk_method": "noaux_tc",
    "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip


# Only transformers knows this family. Attacks may not start processes, so it is refused without the library.
_NESTED = {
    "model_type": "llama4", "architectures": ["Llama4ForConditionalGeneration"], "torch_dtype": "bfloat16",
    "text_config": {"model_type": "llama4_text", "num_hidden_layers": 4, "hidden_size": 256, "num_local_experts": 4},
    "vision_config": {"hidden_size": 64, "num_hidden_layers": 2}, "auto_map": {"AutoConfig": "a--b.C"},
}  # fmt: skip
_HYBRID = """
layers = 8
hidden = 256
feed_forward = 688
vocabulary = 1000
heads = 4
layer_kinds = ["scan", "scan", "full"]

[kinds.scan]
attention = false
norms = 1
tensors = [[512, 256], [512, 4], [8]]

[kinds.full]
feed_forward = "dense"

[parallel]
data = 2
zero = 3
"""


class DescribedFiles(Family):
    """Attacks on files that the commands plan, size and show read.

    The files describe a model, a published table or a recorded job.
    """

    name = "described"

    def prepare(self, originals: Path) -> None:
        """Read one valid file of each kind and keep its text. The directory ``originals`` is not used."""
        library_models.is_installed = lambda: False
        shipped = resources("templates")
        self.texts = {
            "model.toml": _MODEL,
            "hybrid.toml": _HYBRID,
            "config.json": json.dumps(_CONFIG, indent=1),
            "nested.json": json.dumps(_NESTED, indent=1),
            "table.toml": (shipped / "storage_tables" / "superpod-h100.toml").read_text(),
            "pattern.json": (shipped / "job_patterns" / "torch-save.json").read_text(),
        }

    def attempt(self, rng: Random, home: Path) -> tuple[list[str], list[str]]:
        name = rng.choice(sorted(self.texts))
        directory, outside = home / "files", home / "outside"
        for place in (directory, outside, home / "out"):
            place.mkdir()
        (outside / "file").write_text(self.texts[name])
        file = directory / name
        file.write_text(self.texts[name])
        done = _changed(rng, directory, file, outside)
        words = {
            "model.toml": [
                ["plan", "--cluster=64", f"--ckpt-model={file}"],
                ["size", "--cluster=64", f"--model={file}"],
            ],
            "config.json": [
                ["plan", "--cluster=64", f"--ckpt-model={file}", "--ckpt-parallel=tp=2,dp=2"],
                ["size", "--cluster=64", f"--model={file}", "--ckpt-parallel=dp=4"],
            ],
            "table.toml": [["size", "--cluster=64", f"--table={file}"]],
            "hybrid.toml": [["plan", "--cluster=64", f"--ckpt-model={file}", "--ckpt-optimizer=muon"]],
            "nested.json": [["plan", "--cluster=64", f"--ckpt-model={file}", "--ckpt-parallel=dp=2"]],
            "pattern.json": [
                ["show", str(file)],
                [
                    "plan",
                    "--cluster=64",
                    f"--ckpt-engine=replay:file={file}",
                    "--ckpt-model=llama3-8b",
                ],
            ],
        }[name]
        asked = rng.choice(words)
        asked += rng.choice([[], ["--json"]]) if asked[0] != "show" else []
        found: list[str] = []
        outcome = self.command(asked, home, _CODES, found)
        found += [f"{name}: it says {word!r}: {outcome.err[-300:]!r}" for word in python_jargon(outcome.err)]
        return [name, done, *asked], found


def _changed(rng: Random, directory: Path, file: Path, outside: Path) -> str:
    if file.suffix == ".toml":
        return changed_line(rng, directory, file, outside)
    way = rng.random()
    if way < 0.06:
        return replaced(rng, directory, outside)
    if way < 0.08:
        return bloated(rng, directory, outside)
    change = change_bytes if way < 0.25 else lambda rng, data: change_json(rng, data, lines=False)
    data, what = change(rng, file.read_bytes())
    file.write_bytes(data)
    return what
