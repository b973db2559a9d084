"""ELMo's releases (Peters et al. 2018): the HDF5 file of weights, and bilm-tf's own checkpoints."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from modules.backbones.elmo import Backbone
from pretrain.conversion import config_fields as fields
from pretrain.conversion import parity
from pretrain.conversion.name_map import Rows, Shapes, Table, expand_rows
from pretrain.conversion.systems import Kind, ReleaseSpec, Source
from pretrain.data.tokenizers import words
from pretrain.inference.run import Run
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import write_json

KINDS = {
    "hdf5": Kind("hdf5", "*options.json", "*weights.hdf5"),
    "tensorflow": Kind("tensorflow", "options.json", "*.index", writable=False),
}
TEXT_FORMAT = "elmo"
compare_outputs = parity.compare_elmo

# --- names -----------------------------------------------------------------------------------

LAYERS, CHARACTERS = "backbone/layers/", "backbone/characters/"
CELLS = {  # of a direction and layer; its kernel, bias and projection
    "hdf5": ("RNN_{z}/RNN/MultiRNNCell/Cell{n}/LSTMCell/", ("W_0", "B", "W_P_0")),
    "tensorflow": (
        "RNN_{z}/rnn/multi_rnn_cell/cell_{n}/lstm_cell/",
        ("kernel", "bias", "projection/kernel"),
    ),
}
WORDS: Rows = {
    "backbone/token_VD": ("embedding", "VD"),
    "head/softmax_VD": ("softmax/W", "VD"),
    "head/bias_V": ("softmax/b", "V"),
}
SPELLING: Rows = {
    f"{CHARACTERS}character_E": ("char_embed", "CE -> CE"),
    f"{CHARACTERS}carry_XX": ("CNN_high_{n}/W_carry", "IO -> IO"),
    f"{CHARACTERS}carry_X": ("CNN_high_{n}/b_carry", "X"),
    f"{CHARACTERS}transform_XX": ("CNN_high_{n}/W_transform", "IO -> IO"),
    f"{CHARACTERS}transform_X": ("CNN_high_{n}/b_transform", "X"),
    f"{CHARACTERS}projection_XD": ("CNN_proj/W_proj", "XD"),
    f"{CHARACTERS}projection_D": ("CNN_proj/b_proj", "D"),
}
IGNORED = {
    r".*/Adagrad(_\d+)?": "slots of the optimiser",
    r"global_step|train_perplexity": "what the training program counts",
}
NO_SOFTMAX = "the HDF5 files have no softmax"


def build_table(kind: str, shapes: Shapes, names: Iterable[str] = ()) -> Table:
    """Builds the table of their arrays and ours; an HDF5 file has none of the softmax's."""
    del names  # always the same
    rows: Rows = {**WORDS, **SPELLING, **build_filter_rows(shapes), **build_cell_rows(kind, shapes)}
    if kind == "hdf5":
        absent = dict.fromkeys(("head/softmax_VD", "head/bias_V"), NO_SOFTMAX)
        rows = {ours: row for ours, row in rows.items() if ours not in absent}
        return Table(expand_rows(rows, shapes), absent=absent)
    links = [link._replace(theirs=f"lm/{link.theirs}") for link in expand_rows(rows, shapes)]
    if shapes[f"{LAYERS}wx_ZDGU"][0] == 1:  # TensorFlow has no names within a stack of one
        links = [x._replace(theirs=x.theirs.replace("multi_rnn_cell/cell_0/", "")) for x in links]
    return Table(links, {}, IGNORED)


def build_filter_rows(shapes: Shapes) -> Rows:
    """Builds the rows of filters, which they count; `read_fields` sees to it that widths rise."""
    widths = sorted(int(w) for w in re.findall(r"/kernel(\d+)_EX", " ".join(shapes)))
    kernels = {
        f"{CHARACTERS}kernel{w}_EX": (f"CNN/W_cnn_{i}", "1WEX -> WEX") for i, w in enumerate(widths)
    }
    biases = {f"{CHARACTERS}bias{w}_X": (f"CNN/b_cnn_{i}", "X") for i, w in enumerate(widths)}
    return kernels | biases


def build_cell_rows(kind: str, shapes: Shapes) -> Rows:
    # A kernel's rows are the input's, then the state's.  With one direction, no name counts it.
    scope, (kernel, bias, projection) = CELLS[kind]
    Z = "" if shapes[f"{LAYERS}wx_ZDGU"][1] == 2 else "Z"
    scope = scope.replace("RNN_{z}/", "") if Z else scope
    return {
        f"{LAYERS}wx_ZDGU": (scope + kernel, f"({Z}QD)(GU) -> {Z}DGU", "Q=0/2"),
        f"{LAYERS}wh_ZDGU": (scope + kernel, f"({Z}QD)(GU) -> {Z}DGU", "Q=1/2"),
        f"{LAYERS}b_ZGU": (scope + bias, f"({Z}GU) -> {Z}GU"),
        f"{LAYERS}wp_ZUD": (scope + projection, f"({Z}U)D -> {Z}UD"),
    }


# --- in --------------------------------------------------------------------------------------

DEFAULTS = {  # of what a file does not say
    "lstm.n_layers": 1,
    "dropout": 0.1,
    "sample_softmax": True,
    "n_negative_samples_batch": 8192,
    "batch_size": 128,
    "unroll_steps": 20,
}
SWITCH = {True: True, False: False, None: False}
ACTIVATIONS = {name: name for name in ("relu", "tanh")}
SIZES = {261: 261, 262: 261}  # of characters, without the filling of inference or with it


def read_release(source: Source) -> ReleaseSpec:
    """Reads what the release is, by its options.

    The option "vocabulary" names a folder that has the vocabulary instead, "lower" says whether
    text is lower-cased.

    Raises:
        UserError: it has no vocabulary, or computes what we do not.
    """
    where = source.find_file(KINDS[source.kind].marker_file)
    options = DEFAULTS | dict(flatten(source.read_json(where.name)))
    fields.read_layers(options, "lstm.n_layers", source, where)
    model = dict(name="elmo", **read_fields(options, where, softmax=source.kind != "hdf5"))
    V, W = model["V"], model.get("W", 0)
    lower = bool(source.options.get("lower"))
    # A model of characters without a softmax knows no words.
    tokens = words.Tokenizer(list(words.MARKS), "blank", lower)
    notes: tuple[str, ...] = ()
    if V:
        tokens = read_vocabulary(source, lower)
        notes = fields.check_vocabulary(tokens, V, source.folder)
    # A sample of as many words as there are is the full softmax.
    samples = fields.read_size(options, "n_negative_samples_batch", where)
    sampled = fields.map_value(options, "sample_softmax", SWITCH, where) and samples < V
    samples = samples if sampled else 0
    batches = dict(
        name="bidirectional",
        B=fields.read_size(options, "batch_size", where),
        L=fields.read_size(options, "unroll_steps", where),
        characters=W,
    )
    # bilm-tf carries its states on from batch to batch, whatever text follows.
    objective = dict(name="bilm", samples=samples, stateful=True, reset="never")
    missing = () if V else ("softmax",)
    tied = fields.map_value(options, "share_embedding_softmax", SWITCH, where)
    return ReleaseSpec(
        model,
        objective,
        TEXT_FORMAT,
        batches,
        tokens,
        missing=missing,
        notes=notes,
        head=dict(tied=tied, bias=True),
    )


def flatten(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields ("lstm.dim", 4096) of {"lstm": {"dim": 4096}}."""
    for name, value in options.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def read_fields(options: dict[str, Any], where: Path, *, softmax: bool) -> dict[str, Any]:
    """Reads the backbone's fields that an options.json stands for.

    Args:
        options: as `flatten` gives them, and the defaults.
        softmax: of a training checkpoint; False: of an HDF5 file, which always reads both ways.

    Raises:
        UserError: something is missing, or cannot be computed here.
    """
    spelled = "char_cnn.filters" in options
    ways = {True: 2, False: 1, None: 1} if softmax else {True: 2, None: 2}
    model = dict(
        V=fields.read_size(options, "n_tokens_vocab", where) if softmax or not spelled else 0,
        D=fields.read_size(options, "lstm.projection_dim", where),
        U=fields.read_size(options, "lstm.dim", where),
        N=fields.read_size(options, "lstm.n_layers", where),
        Z=fields.map_value(options, "bidirectional", ways, where),
        inputs="characters" if spelled else "words",
        residual=fields.map_value(options, "lstm.use_skip_connections", SWITCH, where),
        clip_cell=read_clip(options, "lstm.cell_clip", where),
        clip_projection=read_clip(options, "lstm.proj_clip", where),
        dropout=fields.read_rate(options, "dropout", where),
    )
    check_projection(model["D"], model["U"], f"{where}: lstm.projection_dim", "lstm.dim")
    return model | (read_spelling(options, where) if spelled else {})


def read_spelling(options: dict[str, Any], where: Path) -> dict[str, Any]:
    fields.map_value(options, "char_cnn.n_characters", SIZES, where)
    fields.require_equal(options, {"share_embedding_softmax": False}, where)
    filters = options["char_cnn.filters"]
    check_filters(filters, f"{where}: char_cnn.filters")
    highways = options.get("char_cnn.n_highway")
    return dict(
        E=fields.read_size(options, "char_cnn.embedding.dim", where),
        filters=tuple(map(tuple, filters)),
        highways=fields.read_size(options, "char_cnn.n_highway", where) if highways else 0,
        activation=fields.map_value(options, "char_cnn.activation", ACTIVATIONS, where),
        W=fields.read_size(options, "char_cnn.max_characters_per_token", where),
    )


def read_clip(options: dict[str, Any], field: str, where: Path) -> float:
    """Reads what cells or states are clipped to; 0: nothing."""
    value = options.get(field)
    if value is None:
        return 0.0
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UserError(f"{where}: {field} is {value!r}, and should be a number above 0, or null")
    return float(value)


def check_filters(filters: Any, name: str) -> None:
    """UserError unless they are [characters, how many] pairs, whose order their widths tell."""
    try:
        widths = [w for w, many in filters if w > 0 and many > 0]
        if filters and len(widths) == len(filters) and widths == sorted(set(widths)):
            return
    except (TypeError, ValueError):
        pass
    raise UserError(
        f"{name} is {filters!r}, and should be pairs [characters, filters], from narrow to wide"
    )


def check_projection(D: int, U: int, name: str, cell: str) -> None:
    if D >= U:
        raise UserError(f"{name}={D} is not below {cell}={U}: theirs would project nothing")


def read_vocabulary(source: Source, lower: bool) -> words.Tokenizer:
    """Reads the words of the release, or of the folder that the option "vocabulary" names."""
    source = source.with_tokenizer_folder()
    path = source.find_file("vocab*.txt")
    return words.Tokenizer.learn(iter(()), vocabulary=str(path), split="blank", lower=lower)


# --- out -------------------------------------------------------------------------------------


def is_writable(run: Run, kind: str) -> bool:
    return isinstance(run.backbone, Backbone)


def write_config_and_tokenizer(run: Run, folder: Path, kind: str, dtype: str) -> None:
    """Writes the options, as inference needs them, and the vocabulary.

    Raises:
        UserError: the run computes what theirs cannot.
    """
    ours = fields.require_parts(run, dict(Z=2), dict(bias=True, transform=False))
    pieces = fields.require_tokenizer(run, words.Tokenizer, "of whole words")
    check_projection(ours.D, ours.U, "model.D", "model.U")
    options = dict(
        bidirectional=True,
        dropout=ours.dropout,
        share_embedding_softmax=ours.inputs == "words" and run.head.tied,
        lstm=dict(
            cell_clip=ours.clip_cell or None,
            proj_clip=ours.clip_projection or None,
            dim=ours.U,
            projection_dim=ours.D,
            n_layers=ours.N,
            use_skip_connections=ours.residual,
        ),
    )
    if ours.V:
        options["n_tokens_vocab"] = ours.V
    if ours.inputs == "characters":
        check_filters(ours.filters, "model.filters")
        options["char_cnn"] = dict(
            activation=ours.activation,
            embedding=dict(dim=ours.E),
            filters=ours.filters,
            n_highway=ours.highways,
            # 261, and the filling of inference, which their code asks for here.
            n_characters=262,
            max_characters_per_token=ours.W,
        )
    write_json(folder / "options.json", options)
    known = pieces.pieces[: ours.V or None]
    (folder / "vocab.txt").write_bytes(words.encode_list(known))
