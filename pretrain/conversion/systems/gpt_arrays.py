"""Names the arrays of GPT-1's and GPT-2's releases: OpenAI's names, numbers, and Hugging Face's."""

import re
from collections.abc import Callable, Iterable

from pretrain.conversion.name_map import Link, Rows, Shapes, Table, expand_rows

FIRST = "hugging_face_gpt1"  # Hugging Face's kind of GPT-1
HUGGING_FACE = ("hugging_face", FIRST)
LAYERS = "backbone/layers/"


def norm(ours: str, theirs: str) -> dict[str, tuple[str, str]]:
    return {f"{ours}/scale_D": (f"{theirs}/g", "D"), f"{ours}/bias_D": (f"{theirs}/b", "D")}


ROWS: Rows = {  # as GPT-2's release has them in its scope "model"
    "backbone/token_VD": ("wte", "VD"),
    "backbone/position_LD": ("wpe", "LD"),
    **{
        f"{LAYERS}attention/w{name}_DHK": ("h{n}/attn/c_attn/w", "1D(QHK)", f"Q={i}/3")
        for i, name in enumerate("qkv")
    },
    **{
        f"{LAYERS}attention/b{name}_HK": ("h{n}/attn/c_attn/b", "(QHK)", f"Q={i}/3")
        for i, name in enumerate("qkv")
    },
    f"{LAYERS}attention/wo_HKD": ("h{n}/attn/c_proj/w", "1(HK)D"),
    f"{LAYERS}attention/bo_D": ("h{n}/attn/c_proj/b", "D"),
    **norm(f"{LAYERS}attention_norm", "h{n}/ln_1"),
    f"{LAYERS}ffn/wi_DF": ("h{n}/mlp/c_fc/w", "1DF"),
    f"{LAYERS}ffn/bi_F": ("h{n}/mlp/c_fc/b", "F"),
    f"{LAYERS}ffn/wo_FD": ("h{n}/mlp/c_proj/w", "1FD"),
    f"{LAYERS}ffn/bo_D": ("h{n}/mlp/c_proj/b", "D"),
    **norm(f"{LAYERS}ffn_norm", "h{n}/ln_2"),
    **norm("backbone/final_norm", "ln_f"),
}
TABLES = ("wpe", "wte")  # GPT-1's arrays have no names, but an order: these, then of each layer
ORDER = (
    "attn/c_attn/w",
    "attn/c_attn/b",
    "attn/c_proj/w",
    "attn/c_proj/b",
    "ln_1/g",
    "ln_1/b",
    "mlp/c_fc/w",
    "mlp/c_fc/b",
    "mlp/c_proj/w",
    "mlp/c_proj/b",
    "ln_2/g",
    "ln_2/b",
)
TORCH = {
    r"^h(\d+)": r"h.\1",
    "/": ".",
    r"\.[wg]$": ".weight",
    r"\.b$": ".bias",
    "^wte$": "wte.weight",
    "^wpe$": "wpe.weight",
}
EMBEDDINGS = {"wte": "tokens_embed", "wpe": "positions_embed"}  # GPT-1's
HEAD = "lm_head.weight"
IGNORED = {
    "tensorflow": {
        r".*/Adam(_1)?": "slots of the optimiser",
        r"global_step|beta[12]_power": "the optimiser's count",
    },
    "hugging_face": {
        r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias": "who may see whom",
        r"(transformer\.)?position_ids": "0, 1, 2, ...",
    },
}


def number_array(name: str) -> str:
    if name in TABLES:
        return str(TABLES.index(name))
    # The order in which OpenAI's train.py made its variables, and saved them.
    layer, _, name = name.removeprefix("h").partition("/")
    return str(len(TABLES) + len(ORDER) * int(layer) + ORDER.index(name))


def spell_torch_name(name: str, first: bool) -> str:
    """Spells a name as Hugging Face does, without the prefix."""
    for theirs, other in TORCH.items():
        name = re.sub(theirs, other, name)
    return re.sub("^w[tp]e", lambda x: EMBEDDINGS[x[0]] if first else x[0], name)


def build_table(kind: str, shapes: Shapes, names: Iterable[str] = ()) -> Table:
    """Builds the table of their arrays and ours.

    Args:
        names: those of a release that was found; "transformer." may be missing before them.
    """

    def renamed(spelled: Callable[[str], str], lead: str = "") -> list[Link]:
        return [
            link._replace(theirs=spelled(link.theirs), form=link.form.removeprefix(lead))
            for link in expand_rows(ROWS, shapes)
        ]

    if kind == "openai_npy":
        return Table(renamed(number_array))
    if kind not in HUGGING_FACE:
        return Table(renamed("model/{}".format), {}, IGNORED["tensorflow"])
    names = list(names)
    bare = bool(names) and not any(name.startswith("transformer.") for name in names)

    def spelled(name: str) -> str:
        theirs = ("" if bare else "transformer.") + spell_torch_name(name, kind == FIRST)
        tied = name == "wte" and HEAD in names and theirs not in names  # one of two is enough
        return HEAD if tied else theirs

    copies = {HEAD: spelled("wte")} if spelled("wte") != HEAD else {}
    # transformers has TensorFlow's kernels, but for the 1 in front.
    return Table(renamed(spelled, "1"), copies, IGNORED["hugging_face"])
