"""What Hugging Face's BERT, GPT-1 and GPT-2 compute, ours computes."""

import re

import jax
import numpy as np
import pytest

from tests.support import transformer_inputs as cases
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

pytestmark = pytest.mark.usefixtures("exactly")

D, H, N, F, V, L = 16, 2, 2, 64, 40, 12
GPT_FIELDS = dict(vocab_size=V, n_positions=L, n_embd=D, n_head=H, n_layer=N)
NO_DROPOUT = dict(embd_pdrop=0, attn_pdrop=0, resid_pdrop=0)
BERT_FIELDS = dict(
    vocab_size=V,
    hidden_size=D,
    num_hidden_layers=N,
    num_attention_heads=H,
    intermediate_size=F,
    max_position_embeddings=L,
    hidden_act="gelu_new",
)

# system: (class, fields of its config, fields of ours, whose names)
PEERS = {
    "BERT": ("Bert", BERT_FIELDS, cases.BERT, cases.bert),
    "GPT-1": ("OpenAIGPT", GPT_FIELDS | NO_DROPOUT, cases.GPT1, cases.gpt),
    "GPT-2": ("GPT2", GPT_FIELDS | NO_DROPOUT, cases.GPT2, cases.gpt),
}


@pytest.mark.parametrize("system", PEERS)
def test_states_and_gradients_are_hugging_face_s(torch, transformers, system):
    kind, flags, fields, arranged = PEERS[system]
    model = cases.tiny(V=V, D=D, H=H, K=D // H, N=N, F=F, L=L, **fields)
    rng = np.random.default_rng(0)
    tokens_BL = rng.integers(1, V, (3, L))  # their BERT gives token 0 no gradient
    valid_BL = np.arange(L) < [[L], [5], [9]]
    segments_BL = rng.integers(0, 2, (3, L)) if model.S else None
    weigh_BLD = rng.normal(0, 1, (3, L, D)) * valid_BL[..., None]
    peer = drawn_peer(torch, transformers, kind, flags)
    named, states, slopes = peer_outputs(torch, peer, tokens_BL, segments_BL, valid_BL, weigh_BLD)

    def loss(params):
        bound = model.bind({"params": params})
        mask = cases.seen(model, valid_BL)
        h_BLD = bound(tokens_BL, mask=mask, segments_BL=segments_BL, train=False).h
        pooled = bound.pool(h_BLD[:, 0]).sum() if model.pooler else 0.0
        return (h_BLD * weigh_BLD).sum() + pooled, h_BLD

    run = quick_jit(jax.value_and_grad(loss, has_aux=True))
    (_, h_BLD), ours = run(jax.tree.map(np.float32, arranged(named, H)))
    assert off(h_BLD * valid_BL[..., None], states * valid_BL[..., None]) < 5e-6
    assert cases.slopes_off(ours, arranged(slopes, H)) < 1e-5


def drawn_peer(torch, transformers, kind, flags):
    """Their model in float64, with weights so large that all of them matter."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**flags)
    peer = getattr(transformers, f"{kind}Model")(config).eval()
    for name, parameter in peer.named_parameters():
        scale = re.search(r"(LayerNorm|ln_.)\.weight", name) is not None
        parameter.data.normal_(float(scale), 0.4)
    return peer.double()


def peer_outputs(torch, peer, tokens_BL, segments_BL, valid_BL, weigh_BLD):
    """(weights, states, gradients), under the originals' names."""
    segments = {} if segments_BL is None else {"token_type_ids": torch.tensor(segments_BL)}
    mask_BL = torch.tensor(valid_BL).long()
    out = peer(torch.tensor(tokens_BL), attention_mask=mask_BL, **segments)
    loss = (out.last_hidden_state * torch.tensor(weigh_BLD)).sum()
    (loss + out.pooler_output.sum() if segments else loss).backward()
    parameters = {original(name): (name, x) for name, x in peer.named_parameters()}
    weights = {new: turned(name, x.detach().numpy()) for new, (name, x) in parameters.items()}
    slopes = {new: turned(name, x.grad.numpy()) for new, (name, x) in parameters.items()}
    return weights, out.last_hidden_state.detach().numpy(), slopes


def turned(name, w):
    """A dense layer's kernel is the other way round in their BERT."""
    return w.T if re.search(r"(query|key|value|dense)\.weight$", name) else w


def original(name):
    """A parameter's name there as the released code has it."""
    if name.startswith(("h.", "ln_f", "wte", "wpe", "tokens", "positions")):
        name = re.sub(r"^h\.(\d+)", r"h\1", name)
        name = re.sub(r"(ln_.)\.weight", r"\1.g", name)
        renamed = {"wte.weight": "wte", "tokens_embed.weight": "wte"}
        renamed |= {"wpe.weight": "wpe", "positions_embed.weight": "wpe"}
        short = re.sub(r"\.(w|b)(eight|ias)$", r"/\1", name)
        return renamed.get(name, short.replace(".", "/"))
    name = re.sub(r"layer\.(\d+)", r"layer_\1", name)
    name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
    name = name.replace("LayerNorm.bias", "LayerNorm.beta")
    name = re.sub(r"_embeddings\.weight", "_embeddings", name)
    return "bert/" + name.replace(".weight", ".kernel").replace(".", "/")
