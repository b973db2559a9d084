"""A transformer by the book, slowly: float64 NumPy, one row at a time, a score for every pair.

Written to be compared with, so it shares nothing with `modules` but the names of the weights.
"""

import numpy as np

from tests.support.xlnet_reference import gelu


def states(
    params,
    tokens_L,
    segments_L=None,
    *,
    pre,
    causal,
    window=0,
    length=None,
    groups_L=None,
    epsilon=1e-5,
):
    """One row's states, [L, D], float64.

    Args:
        pre, causal, window, epsilon: norms before, from the left, band of layers 1, 3, 5 ...
        length: so many of the row are real; None: all.
        groups_L: one sees one's own group.
    """
    L = len(tokens_L)
    length, groups_L = length or L, np.zeros(L) if groups_L is None else groups_L
    p = _exact(params)
    x_LD = p["token_VD"][tokens_L] + p["position_LD"][:L]
    if "segment_SD" in p:
        x_LD = x_LD + p["segment_SD"][np.zeros(L, int) if segments_L is None else segments_L]
    if "embedding_norm" in p:
        x_LD = _norm(x_LD, p["embedding_norm"], epsilon)
    for n in range(len(params["layers"]["ffn"]["bi_F"])):
        w, band = _layer(p["layers"], n), window if n % 2 else 0
        hidden_LL = np.ones((L, L), bool)
        for i, j in np.ndindex(L, L):
            near, past = not band or i - band < j <= i, not causal or j <= i
            hidden_LL[i, j] = not (near and past and j < length and groups_L[i] == groups_L[j])
        for name, part in (("attention", _attention), ("ffn", _feed_forward)):
            y_LD = _norm(x_LD, w[f"{name}_norm"], epsilon) if pre else x_LD
            x_LD = x_LD + part(y_LD, w[name], hidden_LL)
            x_LD = x_LD if pre else _norm(x_LD, w[f"{name}_norm"], epsilon)
    return _norm(x_LD, p["final_norm"], epsilon) if pre else x_LD


def _attention(x_LD, w, hidden_LL):
    out_LD = np.zeros_like(x_LD) + w["bo_D"]
    for h in range(w["wq_DHK"].shape[1]):
        q, k, v = (x_LD @ w[f"w{n}_DHK"][:, h] + w[f"b{n}_HK"][h] for n in "qkv")
        score = np.where(hidden_LL, -1e30, q @ k.T / np.sqrt(q.shape[1]))
        prob = np.exp(score - score.max(1, keepdims=True))
        out_LD += prob / prob.sum(1, keepdims=True) @ v @ w["wo_HKD"][h]
    return out_LD


def _feed_forward(x_LD, w, _):
    return gelu(x_LD @ w["wi_DF"] + w["bi_F"]) @ w["wo_FD"] + w["bo_D"]


def _norm(x_LD, w, epsilon):
    centred = x_LD - x_LD.mean(-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return centred / spread * w["scale_D"] + w["bias_D"]


def _exact(tree):
    return {k: _exact(x) if isinstance(x, dict) else np.asarray(x, float) for k, x in tree.items()}


def _layer(tree, n):
    return {k: _layer(x, n) if isinstance(x, dict) else x[n] for k, x in tree.items()}
