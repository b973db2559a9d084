"""Imports what commands import, but no command: a main defines its flags when it is run."""

import importlib
import warnings

# JAX warns of its threads, of which there are none before its first computation.
warnings.filterwarnings("ignore", message="os.fork")

IMPORTS = (
    *("h5py", "matplotlib.pyplot", "tensorboardX.record_writer", "tensorboardX.summary"),
    *("finetune.job", "pretrain.aot.mesh_search", "pretrain.cli", "pretrain.conversion.importer"),
    *("pretrain.diagnostics.studies", "pretrain.inference.embedder"),
    *("pretrain.inference.generator", "pretrain.training.loop"),
    "pretrain.training.reports.summary",
)
for name in IMPORTS:
    importlib.import_module(name)
