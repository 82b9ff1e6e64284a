"""Training neither imports TensorFlow nor waits for it, from the command to the first batch."""

import json
import subprocess
import sys
from pathlib import Path

import experiments

_TRAIN = """
import json, sys
from pathlib import Path
from experiments.data.config import DataConfig
from experiments.data.objectives import batch_spec

cfg = DataConfig(**json.loads(sys.argv[1]))
cfg.check()
batch_spec(cfg, 8)
light = set(sys.modules)
from experiments.data.batches import Batches
from experiments.data.baseline import unigram_nll
from experiments.data.prefetch import Prefetcher
from experiments.data.prepare import prepare

phases = []
prepared = prepare(cfg, Path(sys.argv[2]), lambda done, total, unit, phase: phases.append(phase))
with Prefetcher(Batches(prepared, cfg, "train", 8), 0, 0) as batches:
    batch = batches.next()
unigram_nll(prepared, cfg, [batch])
heavy = {"tensorflow", "seqio", "tensorflow_datasets", "jax", "sklearn", "pyarrow"}
print(json.dumps({
    "config": sorted((heavy | {"sentencepiece", "scipy"}) & light),
    "training": sorted(heavy & set(sys.modules)),
    "phases": list(dict.fromkeys(phases)),
    "digest": prepared.digest,
}))
"""


def test_training_imports_no_tensorflow(small, small_cfg, tmp_path):
    import dataclasses

    root = Path(experiments.__file__).parents[1]
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            _TRAIN,
            json.dumps(dataclasses.asdict(small_cfg)),
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        cwd=root,
        check=True,
    )
    said = json.loads(result.stdout)
    assert said["config"] == said["training"] == []
    assert said["phases"] == ["starting", "corpus", "vocabulary", *said["phases"][3:]]
    assert said["digest"] == small.digest
    assert result.stderr == ""
