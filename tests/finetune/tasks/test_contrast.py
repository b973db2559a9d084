"""Vectors are trained by contrast over the whole batch, and judged by their cosines."""

import json

import jax
import numpy as np
import optax
import pytest

from finetune import tasks
from finetune.inputs.batches import Examples
from finetune.several.shared_tasks import SharedTasks
from finetune.tasks import contrast
from modules.layers import pooling
from modules.losses import contrastive
from modules.plugins import FieldError
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.runtime.errors import UserError
from pretrain.training.compiled_steps import Steps
from tests.support import text_tasks
from tests.support.compiler import quick_jit
from tests.support.tagging_data import add_weights, draw_params

L = text_tasks.L
TEXTS = [("a b c d e f", "d e"), ("e f", "g h i"), ("a", "b c d"), ("b d f h", "a")]
TEXTS += [(b + " i", a + " g c") for a, b in TEXTS]
LABELS = ["no", "yes", "yes", None] * 2
PAIRS = [
    {"texts": list(texts), "label": label, "where": f"row {i}"}
    for i, (texts, label) in enumerate(zip(TEXTS, LABELS, strict=True))
]
JOINT = dict(views=("feature_cutoff", "shuffle"), rates=(0.2, 0.0), features="max_square")


def build(examples=PAIRS, head=None, **loss):
    """(host's half, module)"""
    inputs, backbone = text_tasks.bert()
    data = contrast.TaskData(inputs, examples)
    head = {"pool": "mean", "eval_pool": "last_two", **(head or {})}
    return data, tasks.build_task(backbone, data, head=head, loss=loss)


class Run:
    """The metrics of one batch and its gradient, as an update by it alone."""

    def __init__(self, devices, parts=1, **loss):
        data, task = build(**loss)
        layout = Layout(make_mesh(devices=jax.devices()[:devices]))
        batches = Examples(data.training_arrays(PAIRS), B=8, L=L)
        steps = Steps(task, optax.sgd(1.0), layout, [batches], seed=0, parts=parts)
        state = steps.init()
        before = jax.device_get(state.params)
        state, metrics = steps.train(state, layout.shard_batch(batches.batch(0), 8))
        self.grads = jax.tree.map(lambda a, b: a - b, before, jax.device_get(state.params))
        self.metrics = {k: float(x.total / x.weight) for k, x in metrics.sums.items()}


def assert_alike(a, b):
    assert a.metrics == pytest.approx(b.metrics, rel=1e-5)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-5), a.grads, b.grads)
    assert np.abs(a.grads["backbone"]["token_VD"]).max() > 1e-3


def test_loss_and_gradient_have_the_negatives_of_all_devices():
    unsupervised = {k: x for k, x in JOINT.items() if k != "features"}
    assert_alike(Run(8, **unsupervised), Run(1, **unsupervised))


@pytest.fixture(scope="module")
def joint():
    """Both halves, a training batch, parameters, and what a step draws: (vectors, metrics)."""
    data, task = build(**JOINT | {"views": ("none", "adversarial"), "weight": 0.3})
    batch = add_weights(data.training_arrays(PAIRS))
    params = draw_params(task, batch, 0.2)
    rngs = {"dropout": jax.random.key(0), "corrupt": jax.random.key(1)}

    def draw(task):
        vectors = task.encode_rows(batch, train=True)
        return vectors, task.compare_rows(vectors, batch, train=True)

    run = quick_jit(lambda params: task.apply({"params": params}, method=draw, rngs=rngs))
    return data, task, batch, params, jax.device_get(run(params))


def test_the_joint_loss_adds_both_texts_contrast_to_the_classifier_s(joint):
    _, _, batch, params, (vectors, metrics) = joint
    a_BOD, b_BOD = vectors["first_BOD"], vectors["second_BOD"]
    apart = [float(contrastive.nt_xent(a_BOD[:, o], b_BOD[:, o], 0.1).sum()) for o in (0, 1)]
    assert metrics["contrast"].total == pytest.approx(sum(apart), rel=1e-5)
    u, v = a_BOD[:, 0], a_BOD[:, 1]
    x_BD = np.concatenate([u, v, np.abs(u - v), np.maximum(u, v) ** 2], 1)
    head = params["classifier"]
    logits = np.asarray(jax.nn.log_softmax(x_BD @ head["w_DC"] + head["bias_C"]))
    known = batch["label_B"] >= 0
    entropy = -logits[known, batch["label_B"][known]].sum()
    assert metrics["classifier"].total == pytest.approx(entropy, rel=1e-4)
    assert metrics["classifier"].weight == known.sum() == 6
    total = entropy + 0.3 * metrics["contrast"].total
    assert metrics["loss"].total == pytest.approx(total, rel=1e-4)
    # A label that is not known makes no noise; any other does.
    is_noisy_B = np.abs(a_BOD - b_BOD).max((1, 2)) > 1e-3
    np.testing.assert_array_equal(is_noisy_B, known)


def test_pairs_are_judged_by_the_cosine_of_their_pooled_layers(joint):
    data, task, _, params, _ = joint
    scored = [x | {"label": float(i)} for i, x in enumerate(PAIRS)]
    rows = data.arrays(scored)

    @quick_jit
    def run(params, rows):
        tokens, valid = (rows[f"{x}_BOL"].reshape(-1, L) for x in ("tokens", "valid"))
        given = dict(mask=contrast.text_mask(task.backbone, valid_BL=valid))
        h_NBLD = task.backbone.apply(
            {"params": params["backbone"]}, tokens, **given, method="layer_states"
        ).h
        outputs = task.apply({"params": params}, rows, method="predict")
        return pooling.last_two(h_NBLD, valid), outputs

    z_BD, outputs = run(params, rows)
    unit_BOD = np.asarray(z_BD / np.linalg.norm(z_BD, axis=1, keepdims=True)).reshape(8, 2, -1)
    np.testing.assert_allclose(outputs["cosine_B"], unit_BOD.prod(1).sum(1), atol=1e-5)
    outputs = jax.device_get(outputs)
    scores = data.scores(scored, outputs)
    assert set(scores) == {"pearson", "spearman", "cosine"}
    assert scores["cosine"] == pytest.approx(outputs["cosine_B"].mean(), rel=1e-5)
    lines = data.format_predictions(scored, outputs)
    assert lines[3]["cosine"] == pytest.approx(float(outputs["cosine_B"][3]))
    vectors = data.format_predictions(scored, {"vector_BD": np.ones((8, 2), np.float32)})
    assert json.dumps(vectors[0]) == '{"vector": [1.0, 1.0]}'
    with pytest.raises(UserError, match="row 0: label 'no' is no number"):
        data.scores(PAIRS, outputs)
    # An evaluation has no loss to compute: its scores are of the predictions.
    assert task.apply({"params": params}, rows, train=False) == {}


def test_a_sentence_by_itself_has_a_vector_and_dropout_alone_makes_its_views():
    single = [{"texts": [x["texts"][0]], "label": None, "where": x["where"]} for x in PAIRS]
    data, task = build(single, head=dict(pool="", eval_pool="", projection="mlp"), name="softmax")
    batch = add_weights(data.training_arrays(single))
    params = draw_params(task, batch, 0.2)
    assert set(params["head"]) == {"mlp"}
    vector_BD = task.apply({"params": params}, batch, method="predict")["vector_BD"]
    assert vector_BD.shape == (8, task.backbone.D)
    assert task.head.pool == "first"  # of BERT's text format


REFUSED = [
    (dict(features="difference"), "the training pairs have no classes", UserError),
    (dict(views=("adversarial", "none")), "'adversarial' is by a classifier", FieldError),
    (dict(views=("crop", "none")), "'crop' is none of none, shuffle", FieldError),
    (dict(views=("none",)), "there are two", FieldError),
    (dict(temperature=0.0), "temperature is above 0", FieldError),
    (dict(name="triplet"), "loss='triplet' is none of nt_xent", FieldError),
    (dict(head=dict(eval_pool="middle")), "eval_pool='middle' is none of", FieldError),
]


@pytest.mark.parametrize(("fields", "message", "error"), REFUSED)
def test_what_does_not_fit_together_is_refused(fields, message, error):
    unlabelled = [x | {"label": None} for x in PAIRS]
    with pytest.raises(error, match=message):
        build(unlabelled, **fields)


def test_rows_that_cannot_be_contrasted_are_refused():
    data, task = build(name="softmax", positives="texts")
    with pytest.raises(UserError, match="row 9: 1 texts, and the first has 2"):
        data.arrays([*PAIRS, {"texts": ["a"], "label": None, "where": "row 9"}])
    batch = add_weights(data.arrays([{"texts": ["a"], "label": None, "where": "row 1"}]))
    variables = jax.eval_shape(lambda key: task.init(key, batch, train=False), jax.random.key(0))
    rngs = dict.fromkeys(("dropout", "corrupt"), jax.random.key(0))
    with pytest.raises(UserError, match="an example of one text has no positive"):
        jax.eval_shape(lambda v: task.apply(v, batch, train=True, rngs=rngs), variables)
    assert SharedTasks(task.backbone, {"sts": task}, {"sts": 1.0}).compares_rows
    frozen = dict(encoder=dict(name="backbone", frozen=True))
    with pytest.raises(UserError, match=r"task.encoder.frozen: sentences are read by the backbone"):
        tasks.build_task(text_tasks.bert()[1], data, **frozen)
