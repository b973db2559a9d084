"""XLNet by the book, slowly: float64 NumPy, one example at a time, a score for every pair.

Follows the formulas of the released modeling.py, under its names: `mask` is 1 where one may not
look, `target_mapping` [P, L] has a one-hot row for each predicted position, every stream is
computed at all L positions.  Written to be compared with, so it shares nothing with `modules`.
"""

import dataclasses
import functools

import numpy as np

ROOT = "model/transformer/"


@dataclasses.dataclass(frozen=True)
class Config:
    """The released code's flags."""

    n_token: int = 30
    n_layer: int = 2
    d_model: int = 16
    n_head: int = 2
    d_head: int = 4
    d_inner: int = 24
    attn_type: str = "bi"
    untie_r: bool = True
    clamp_len: int = -1
    same_length: bool = False
    ff_activation: str = "gelu"
    mem_len: int = 0
    reuse_len: int = 0
    bi_data: bool = False


def random_weights(cfg: Config, seed: int) -> dict[str, np.ndarray]:
    """Float32 weights under the original's variable names, large enough that all of them matter."""
    draw = np.random.default_rng(seed)
    D, n, d, F = cfg.d_model, cfg.n_head, cfg.d_head, cfg.d_inner
    tied = (cfg.n_layer, n, d) if cfg.untie_r else (n, d)
    shapes = {
        "word_embedding/lookup_table": (cfg.n_token, D),
        "mask_emb/mask_emb": (1, 1, D),
        "seg_embed": (cfg.n_layer, 2, n, d),
        **{f"r_{kind}_bias": tied for kind in "wrs"},
    }
    for i in range(cfg.n_layer):
        shapes |= {f"layer_{i}/rel_attn/{name}/kernel": (D, n, d) for name in "qkvro"}
        shapes |= {f"layer_{i}/ff/layer_1/kernel": (D, F), f"layer_{i}/ff/layer_1/bias": (F,)}
        shapes |= {f"layer_{i}/ff/layer_2/kernel": (F, D), f"layer_{i}/ff/layer_2/bias": (D,)}
        norms = [f"layer_{i}/{part}/LayerNorm" for part in ("rel_attn", "ff")]
        shapes |= {f"{norm}/{name}": (D,) for norm in norms for name in ("gamma", "beta")}
    weights = {ROOT + name: draw.normal(0, 0.4, shape) for name, shape in shapes.items()}
    weights |= {name: 1 + w for name, w in weights.items() if name.endswith("gamma")}
    weights["model/lm_loss/bias"] = draw.normal(0, 0.4, cfg.n_token)
    return {name: w.astype(np.float32) for name, w in weights.items()}


def ours(w: dict[str, np.ndarray], cfg: Config) -> dict:
    """The same weights as `modules.backbones.two_stream` arranges them."""

    def stack(name: str) -> np.ndarray:
        return np.stack([w[f"{ROOT}layer_{i}/{name}"] for i in range(cfg.n_layer)])

    def norm(part: str) -> dict:
        pairs = {"scale_D": "gamma", "bias_D": "beta"}
        return {name: stack(f"{part}/LayerNorm/{theirs}") for name, theirs in pairs.items()}

    kinds = {"content_HK": "w", "position_HK": "r", "segment_HK": "s"}
    biases = {name: w[f"{ROOT}r_{kind}_bias"] for name, kind in kinds.items()}
    attention = {f"w{name}_DHK": stack(f"rel_attn/{name}/kernel") for name in "qkvr"}
    attention["wo_HKD"] = np.moveaxis(stack("rel_attn/o/kernel"), 1, -1)
    attention["segment_SHK"] = w[ROOT + "seg_embed"]
    ffn = {f"w{i}": stack(f"ff/layer_{n}/kernel") for i, n in (("i_DF", 1), ("o_FD", 2))}
    ffn |= {f"b{i}": stack(f"ff/layer_{n}/bias") for i, n in (("i_F", 1), ("o_D", 2))}
    no_query, no_bias = np.zeros((1, 1, cfg.d_model), np.float32), np.zeros(cfg.n_token, np.float32)
    tree = {
        "token_VD": w[ROOT + "word_embedding/lookup_table"],
        "query_1D": w.get(ROOT + "mask_emb/mask_emb", no_query)[0],
        "bias_V": w.get("model/lm_loss/bias", no_bias),
        "layers": {
            "attention": attention | ({"biases": biases} if cfg.untie_r else {}),
            "attention_norm": norm("rel_attn"),
            "ffn": ffn,
            "ffn_norm": norm("ff"),
        },
    }
    return tree if cfg.untie_r else tree | {"biases": biases}


def transformer(
    cfg: Config,
    w,
    inp_k,
    seg_id,
    *,
    mems=None,
    perm_mask=None,
    target_mapping=None,
    inp_q=None,
    backward=False,
):
    """One example: (outputs [P or L, D], new memories per layer, each [M, D]).

    Args:
        inp_k, seg_id: ids [L].  mems: [n_layer, M, D].  perm_mask: [L, L].
        target_mapping: [P, L]; asks for the query stream.
        inp_q: [P], 1 where the query starts from mask_emb; None: everywhere.
        backward: the row is read from right to left.
    """
    w = {name: np.asarray(x, np.float64) for name, x in w.items()}
    L, M = len(inp_k), 0 if mems is None else len(mems[0])
    attn_mask, non_tgt_mask = _masks(cfg, L, M, perm_mask)
    seg_cat = np.concatenate([np.zeros(M, int), seg_id])
    seg_mat = (np.asarray(seg_id)[:, None] != seg_cat).astype(int)
    pos = _positions(cfg, L, M, bool(backward))
    h = w[ROOT + "word_embedding/lookup_table"][inp_k]
    g = None
    if target_mapping is not None:
        own, emb = target_mapping @ h, w[ROOT + "mask_emb/mask_emb"][0]
        blind = np.ones((len(own), 1)) if inp_q is None else np.asarray(inp_q)[:, None]
        g = blind * emb + (1 - blind) * own
    new_mems = []
    for i in range(cfg.n_layer):
        mem = np.zeros((0, cfg.d_model)) if mems is None else np.asarray(mems[i], np.float64)
        new_mems.append(_cache(cfg, h, mem))
        cat = np.concatenate([mem, h])
        if g is not None:
            a = _attend(
                cfg, w, i, target_mapping.T @ _heads(w, i, "q", g), cat, pos, seg_mat, attn_mask
            )
            g_next = _after(cfg, w, i, g, target_mapping @ a)
        a = _attend(cfg, w, i, _heads(w, i, "q", h), cat, pos, seg_mat, non_tgt_mask)
        h = _after(cfg, w, i, h, a)
        g = g if g is None else g_next
    return (h if g is None else g), new_mems


def _masks(cfg: Config, L: int, M: int, perm_mask):
    """[L, M + L] for the query stream, and for the content stream, which always sees itself."""
    mask = np.zeros((L, M + L))
    for i in range(L):
        for j in range(M + L):
            if cfg.attn_type == "uni":
                mask[i, j] += j - M > i
                mask[i, j] += cfg.same_length and j < i
            if perm_mask is not None and j >= M:
                mask[i, j] += perm_mask[i, j - M]
    itself = np.eye(L, M + L, M)
    return (mask > 0).astype(float), ((mask > 0) - itself > 0).astype(float)


@functools.cache
def _positions(cfg: Config, L: int, M: int, backward: bool):
    """[L, M + L, D]: the sinusoid of every pair's distance, query minus key."""
    inv_freq = 1 / 10000 ** (np.arange(0, cfg.d_model, 2.0) / cfg.d_model)
    pos = np.zeros((L, M + L, cfg.d_model))
    for i in range(L):
        for j in range(M + L):
            distance = (M + i) - j
            distance = -distance if backward else distance
            if cfg.clamp_len > 0:
                distance = min(max(distance, -cfg.clamp_len), cfg.clamp_len)
            angle = distance * inv_freq
            pos[i, j] = np.concatenate([np.sin(angle), np.cos(angle)])
    return pos


def _heads(w, i: int, name: str, x):
    """[..., D] -> [..., n d]: one projection, its heads side by side."""
    kernel = w[f"{ROOT}layer_{i}/rel_attn/{name}/kernel"]
    return x @ kernel.reshape(len(kernel), -1)


def _attend(cfg: Config, w, i: int, q, cat, pos, seg_mat, mask):
    """The attention's output after the o-projection, [L, D]."""
    k, v, k_r = (_heads(w, i, name, x) for name, x in zip("kvr", (cat, cat, pos), strict=True))
    seg_embed = w[ROOT + "seg_embed"][i]
    d, joined = cfg.d_head, []
    for n in range(cfg.n_head):
        head = slice(n * d, (n + 1) * d)
        biases = (w[f"{ROOT}r_{kind}_bias"] for kind in "wrs")
        r_w, r_r, r_s = ((b[i] if cfg.untie_r else b)[n] for b in biases)
        ac = (q[:, head] + r_w) @ k[:, head].T
        bd = np.einsum("id,ijd->ij", q[:, head] + r_r, k_r[..., head])
        ef = np.einsum("id,ijd->ij", q[:, head] + r_s, seg_embed[seg_mat, n])
        score = (ac + bd + ef) / np.sqrt(d) - 1e30 * mask
        prob = np.exp(score - score.max(1, keepdims=True))
        joined.append(prob / prob.sum(1, keepdims=True) @ v[:, head])
    kernel = w[f"{ROOT}layer_{i}/rel_attn/o/kernel"]
    return np.concatenate(joined, 1) @ kernel.reshape(len(kernel), -1).T


def _after(cfg: Config, w, i: int, x, a):
    """What follows the attention in a layer: norm, feed-forward, norm."""
    act = {"relu": lambda y: np.maximum(y, 0), "gelu": gelu}[cfg.ff_activation]
    x = _norm(w, f"{ROOT}layer_{i}/rel_attn", x + a)
    ff = f"{ROOT}layer_{i}/ff"
    inner = act(x @ w[f"{ff}/layer_1/kernel"] + w[f"{ff}/layer_1/bias"])
    return _norm(w, ff, x + inner @ w[f"{ff}/layer_2/kernel"] + w[f"{ff}/layer_2/bias"])


def gelu(x):
    """The tanh form."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _norm(w, scope: str, x):
    gamma, beta = w[f"{scope}/LayerNorm/gamma"], w[f"{scope}/LayerNorm/beta"]
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * gamma + beta


def _cache(cfg: Config, h, mem):
    """The last mem_len of the old memory and of the reused part of this layer's input."""
    if not cfg.mem_len:
        return None
    reused = h[: cfg.reuse_len] if cfg.reuse_len > 0 else h
    return np.concatenate([mem, reused])[-cfg.mem_len :]
