"""Published weights to a run, and back:  python -m pretrain.convert --source=DIR --workdir=runs/x

    python -m pretrain.convert --source=uncased_L-12_H-768_A-12 --workdir=runs/bert-base
    python -m pretrain.convert --workdir=runs/bert-mini --out=bert-mini-hf
    python -m pretrain.convert --workdir=runs/consert --out=consert-st --pool=last_two
    python -m pretrain.convert --source=hub:google-bert/bert-base-uncased --workdir=runs/bert-base
    python -m pretrain.convert --workdir=runs/mine --out=mine-hf --push=me/mine --license=mit

The first makes a run of a folder with published weights of BERT and its successors, XLNet, GPT,
ELMo or the AWD-LSTM; the second writes a run's weights for other tools, as Hugging Face's by
default; the third a folder that sentence-transformers loads, too.  Each prints what became of every
array, and leaves nothing half-made.
"""

import pathlib

from absl import flags, logging

from pretrain import cli
from pretrain.cli import arguments
from pretrain.conversion import exporter, hub, importer
from pretrain.conversion.sentence_transformers import SentenceForm
from pretrain.runtime.errors import UsageError

flags.declare_key_flag("workdir")
flags.declare_key_flag("pool")  # written for sentence-transformers, which pools so
flags.declare_key_flag("normalize")
SOURCE = flags.DEFINE_string(
    "source", None, "A folder of published weights, or hub:org/name, to make a run of."
)
PUSH = flags.DEFINE_string("push", "", "Put what --out wrote on the Hugging Face Hub, as org/name.")
PRIVATE = flags.DEFINE_bool("private", False, "What --push makes anew is to be seen by you alone.")
LICENSE = flags.DEFINE_string(
    "license", "", "Licence of the weights that are written, for their card, as apache-2.0."
)
OUT = flags.DEFINE_string("out", None, "A folder to write the run's weights to.")
SYSTEM = flags.DEFINE_string(
    "system",
    "",
    "Whose release: bert, roberta, distilbert, electra, gpt, xlnet, elmo, awd_lstm, or a module.",
)
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
    workdir = pathlib.Path(str(cli.WORKDIR.value)).expanduser().absolute()
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
            license=LICENSE.value,
        )
        if PUSH.value:
            print(f"pushed to {hub.push(out, PUSH.value, private=PRIVATE.value)}")
        return
    if PUSH.value or LICENSE.value:
        raise UsageError("--push and --license are of what is written, with --out")
    if pool:
        raise UsageError("--pool is of what is written, with --out")
    if DTYPE.value:
        raise UsageError("--dtype is of what is written: a run's own weights are float32")
    source = str(SOURCE.value)
    path, address = pathlib.Path(source).expanduser(), ""
    if source.startswith(hub.PREFIX):
        path, address = hub.download(source.removeprefix(hub.PREFIX))
    importer.import_weights(
        path,
        workdir,
        address=address,
        kind=KIND.value,
        system=SYSTEM.value,
        ignore=IGNORE.value,
        check=CHECK.value,
        lower=LOWER.value,
        vocabulary=VOCABULARY.value,
    )


if __name__ == "__main__":
    cli.run(main, required=["workdir"], interrupted="nothing was made")
