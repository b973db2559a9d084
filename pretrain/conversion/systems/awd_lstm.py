"""Releases of the AWD-LSTM (Merity et al. 2017) and of ULMFiT's language models, as safetensors.

Both are published as pickles, which can run anything and are not read.  With PyTorch, where the
release's own code is installed, a folder is made of them:

    state = model.state_dict()
    save_file({name: x.clone() for name, x in state.items()}, "folder/model.safetensors")

salesforce/awd-lstm-lm: `model` is the first of what torch.load gives, and beside it lies
`idx2word.txt`, the words of `corpus.dictionary.idx2word`, one a line.  fastai (`lstm_fwd.pth`): the
file is the state itself, or is under "model" in it, and `itos.txt` has the words of its .pkl.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from modules.backbones.awd_lstm import Backbone
from pretrain.conversion import config_fields as fields
from pretrain.conversion.name_map import Shapes, Table, expand_rows
from pretrain.conversion.systems import Kind, ReleaseSpec, Source
from pretrain.data.tokenizers import words
from pretrain.inference.run import Run
from pretrain.runtime.errors import UserError

VOCABULARIES = {"salesforce": "idx2word.txt", "fastai": "itos.txt"}
KINDS = {name: Kind("safetensors", vocabulary) for name, vocabulary in VOCABULARIES.items()}
TEXT_FORMAT = "ulmfit"

# --- names -----------------------------------------------------------------------------------

PREFIXES = {"salesforce": ("", ""), "fastai": ("0.", "1.")}  # of the encoder's, the decoder's
# Names of the state's weights: with weight drop, without it, and within other forms of it.
STATE = {
    "salesforce": ("module.weight_hh_l0_raw", "module.weight_hh_l0", "weight_hh_l0"),
    "fastai": ("weight_hh_l0_raw",),
}
# Their gates are i, f, g, o, ours i, g, f, o: of two by two the other order.
GATES = "P=/2 Q=/2"
DROPPED = "the state's weights as they were last dropped out"


def build_table(kind: str, shapes: Shapes, names: Iterable[str] = ()) -> Table:
    """Builds the table of their arrays and ours; the softmax repeats the words' vectors."""
    encoder, decoder = PREFIXES[kind]
    present = set(names)
    rows: dict[str, Sequence[str]] = {
        "backbone/token_VD": (f"{encoder}encoder.weight", "VD"),
        "head/bias_V": (f"{decoder}decoder.bias", "V"),
    }
    for n in range(count_layers(shapes)):
        layer = f"{encoder}rnns.{n}."
        state = next((x for x in STATE[kind] if layer + x in present), STATE[kind][0])
        others = layer + ("" if state == "weight_hh_l0" else "module.")
        ours = f"backbone/layer_{n}/"
        rows |= {
            f"{ours}wx_ZDGU": (f"{others}weight_ih_l0", "(ZPQU)D -> ZD(QP)U", GATES),
            f"{ours}wh_ZDGU": (layer + state, "(ZPQU)D -> ZD(QP)U", GATES),
            f"{ours}b_ZGU": (f"{others}bias_ih_l0", "(ZPQU) -> Z(QP)U", GATES),
            f"{ours}bh_ZGU": (f"{others}bias_hh_l0", "(ZPQU) -> Z(QP)U", GATES),
        }
    repeats = (f"{decoder}decoder.weight", f"{encoder}encoder_dp.emb.weight")
    copies = dict.fromkeys(repeats, f"{encoder}encoder.weight")
    ignored = {r"0\.rnns\.\d+\.module\.weight_hh_l0": DROPPED} if kind == "fastai" else {}
    return Table(expand_rows(rows, shapes), copies, ignored)


def count_layers(shapes: Shapes) -> int:
    return sum(name.endswith("/wh_ZDGU") for name in shapes)


# --- in --------------------------------------------------------------------------------------

# Where texts begin and end, and a word that is unknown; the first that a vocabulary has.
MARKS = (("xxbos", "xxbos", "xxunk"), ("<eos>", "<eos>", "<unk>"), words.MARKS)
# Weights do not say these: the values of both releases for WikiText-103's model.
REGULARIZERS = dict(dropoute=0.1, dropouti=0.4, dropouth=0.2, wdrop=0.5)
PENALTIES = dict(dropout=0.4, ar=2.0, tar=1.0)


def read_release(source: Source) -> ReleaseSpec:
    """Reads what the release is, by the shapes of its arrays.

    The option "vocabulary" names a folder that has the vocabulary instead, "lower" says whether
    text is lower-cased.  Texts must be cut into words as the release's were.

    Raises:
        UserError: it has no vocabulary, or is none of these LSTMs.
    """
    tokens = read_vocabulary(source)
    V, D, U, N = read_sizes(source)
    notes = fields.check_vocabulary(tokens, V, source.folder)
    return ReleaseSpec(
        dict(name="awd_lstm", V=V, D=D, U=U, N=N, **REGULARIZERS),
        dict(name="clm", stateful=True, attend_across_documents=True, **PENALTIES),
        TEXT_FORMAT,
        dict(name="bptt", B=80, L=80, bptt=70),
        tokens,
        notes=(*notes, "dropouts and penalties are not in the weights: the papers' are taken"),
        head=dict(tied=True, bias=True),
    )


def read_sizes(source: Source) -> tuple[int, int, int, int]:
    """Reads words, width of a word, units and layers from the arrays' shapes.

    Raises:
        UserError: the arrays they stand in are missing.
    """
    encoder, _ = PREFIXES[source.kind]
    specs = source.specs
    N = sum(name.endswith("weight_ih_l0") for name in specs)
    table = specs.get(f"{encoder}encoder.weight")
    first = [specs.get(f"{encoder}rnns.0.{name}") for name in STATE[source.kind]]
    shapes = [x.shape for x in (table, *first) if x is not None]
    if table is None or len(shapes) < 2 or {len(shape) for shape in shapes} != {2}:
        raise UserError(
            f"{source.folder} has no {encoder}encoder.weight and {encoder}rnns.0.* of an AWD-LSTM"
        )
    (V, D), (_, U) = shapes[:2]
    return V, D, U, N


def read_vocabulary(source: Source) -> words.Tokenizer:
    """Reads the words of the release, or of the folder that the option "vocabulary" names.

    Raises:
        UserError: there is none, a word is there twice, or no mark of a text's end is.
    """
    source = source.with_tokenizer_folder()
    path = source.find_file(VOCABULARIES[source.kind])
    pieces = words.read_list(path, str(path))
    marks = next((x for x in MARKS if set(x) <= set(pieces)), None)
    if marks is None:
        choices = " or ".join(" and ".join(dict.fromkeys(x)) for x in MARKS)
        raise UserError(f"{path}: there is no {choices} among its words")
    lower = bool(source.options.get("lower"))
    return words.Tokenizer(pieces, "blank", lower, marks)


# --- out -------------------------------------------------------------------------------------


def is_writable(run: Run, kind: str) -> bool:
    return isinstance(run.backbone, Backbone)


def write_config_and_tokenizer(run: Run, folder: Path, kind: str, dtype: str) -> None:
    """Writes the vocabulary.

    Raises:
        UserError: the run computes what theirs cannot.
    """
    ours = fields.require_parts(run, {}, dict(tied=True, bias=True, transform=False))
    pieces = fields.require_tokenizer(run, words.Tokenizer, "of whole words")
    (folder / VOCABULARIES[kind]).write_bytes(words.encode_list(pieces.pieces[: ours.V]))


def advise(run: Run, kind: str) -> list[str]:
    """Says how theirs load what was written."""
    lines = [
        "load_state_dict(..., strict=False): the softmax is tied, and its weight there once; words "
        f"are in {VOCABULARIES[kind]}, cut at blanks"
    ]
    tokenizer = fields.require_tokenizer(run, words.Tokenizer, "of whole words")
    if tokenizer.split != "blank" or tokenizer.lower:
        lines.append(
            f"its texts were read with split={tokenizer.split!r}, lower={tokenizer.lower}, as no "
            "file here says: an import of this folder cuts at blanks, and lower-cases by --lower"
        )
    return lines
