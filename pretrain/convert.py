"""Published weights to a run, and back:  python -m pretrain.convert --source=DIR --workdir=runs/x

    python -m pretrain.convert --source=uncased_L-12_H-768_A-12 --workdir=runs/bert-base
    python -m pretrain.convert --workdir=runs/bert-mini --out=bert-mini-hf
    python -m pretrain.convert --workdir=runs/consert --out=consert-st --pool=last_two

The first makes a run of a folder with published weights of BERT, XLNet, GPT-1, GPT-2 or ELMo; the
second writes a run's weights for other tools, as Hugging Face's by default; the third a folder that
sentence-transformers loads, too.  Each prints what became of every array, and leaves nothing
half-made.
"""

import pathlib

from absl import flags, logging

from pretrain import arguments, cli
from pretrain.conversion import exporter, importer
from pretrain.conversion.sentence_transformers import SentenceForm
from pretrain.runtime.errors import UsageError

flags.declare_key_flag("workdir")
flags.declare_key_flag("pool")  # written for sentence-transformers, which pools so
flags.declare_key_flag("normalize")
SOURCE = flags.DEFINE_string("source", None, "A folder of published weights, to make a run of.")
OUT = flags.DEFINE_string("out", None, "A folder to write the run's weights to.")
SYSTEM = flags.DEFINE_string("system", "", "Whose release: bert, gpt, xlnet, elmo, or a module.")
KIND = flags.DEFINE_string("kind", "", "Of release: hugging_face, tensorflow, npz, hdf5, ...")
DTYPE = flags.DEFINE_enum(
    "dtype", None, exporter.DTYPES, "Of what is written; default: as it came in."
)
IGNORE = flags.DEFINE_string("ignore", "", "Arrays to leave out: a pattern of their names.")
CHECK = flags.DEFINE_bool("check", False, "Compare with what the release says that it computes.")
LOWER = flags.DEFINE_bool("lower", None, "Text is lower-cased; default: as the files say.")
VOCABULARY = flags.DEFINE_string("vocabulary", None, "A folder with the tokenizer's files.")


def main(_) -> None:
    logging.get_absl_logger().setLevel("CRITICAL")  # Orbax tells of each error that it raises
    if bool(SOURCE.value) == bool(OUT.value):
        raise UsageError("say --source=DIR to import weights, or --out=DIR to export them")
    workdir = pathlib.Path(str(cli.WORKDIR.value)).absolute()
    pool = arguments.POOL.value
    if arguments.NORMALIZE.value and not pool:
        raise UsageError("--normalize is of sentence vectors: say --pool, too")
    if OUT.value:
        form = SentenceForm(pool, arguments.NORMALIZE.value) if pool else None
        out = pathlib.Path(str(OUT.value))
        exporter.export_weights(
            workdir,
            out,
            kind=KIND.value,
            system=SYSTEM.value,
            dtype=DTYPE.value or "",
            sentences=form,
        )
        return
    if pool:
        raise UsageError("--pool is of what is written, with --out")
    if DTYPE.value:
        raise UsageError("--dtype is of what is written: a run's own weights are float32")
    importer.import_weights(
        pathlib.Path(str(SOURCE.value)).expanduser(),
        workdir,
        kind=KIND.value,
        system=SYSTEM.value,
        ignore=IGNORE.value,
        check=CHECK.value,
        lower=LOWER.value,
        vocabulary=VOCABULARY.value,
    )


if __name__ == "__main__":
    cli.run(main, required=["workdir"], interrupted="nothing was made")
