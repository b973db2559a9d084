"""A text has one vector in training and, if the recipe says so, another in evaluation."""

import functools

import jax
import numpy as np
import pytest

import modules
from modules.heads.sentence_vector import SentenceVector
from modules.layers import pooling
from modules.masks import Mask
from modules.plugins import FieldError
from tests.support import transformer_inputs as cases
from tests.support.compiler import quick_jit

H_NBLD = np.random.default_rng(0).normal(0, 1, (4, 2, 3, 5)).astype("f")
VALID_BL = np.array([[1, 1, 1], [1, 1, 0]], bool)
BERT = cases.tiny(**cases.BERT)


def test_the_projection_and_the_pooling_of_training_are_not_those_of_evaluation():
    head = SentenceVector(None, eval_pool="first_last", projection="mlp")
    variables = head.init(jax.random.key(0), H_NBLD, VALID_BL, train=True)
    mlp, mean_BD = variables["params"]["mlp"], pooling.mean(H_NBLD[-1], VALID_BL)
    projected_BD = np.tanh(mean_BD @ mlp["kernel"] + mlp["bias"])
    run = functools.partial(head.apply, variables, H_NBLD, VALID_BL)
    np.testing.assert_allclose(run(train=True), projected_BD, atol=1e-6)
    first_last_BD = pooling.first_last(H_NBLD, VALID_BL)
    np.testing.assert_allclose(run(train=False), first_last_BD, atol=1e-6)
    supervised = head.clone(mlp_only_train=False, eval_pool="")
    found_BD = supervised.apply(variables, H_NBLD, VALID_BL, train=False)
    np.testing.assert_allclose(found_BD, projected_BD, atol=1e-6)


@pytest.mark.slow
def test_the_backbone_s_own_layer_is_its_pooler_s():
    tokens_BL, h_NBLD = np.zeros((2, 3), int), H_NBLD[:1, ..., :1] * np.ones(BERT.D, "f")
    init = functools.partial(BERT.init, mask=Mask(), train=False)
    variables = quick_jit(init)(jax.random.key(0), tokens_BL)
    params, head = {"backbone": variables["params"]}, SentenceVector(BERT, pool="pooler")
    found_BD = head.apply({"params": params}, h_NBLD, VALID_BL, train=True)
    expected_BD = BERT.apply(variables, h_NBLD[0, :, 0], method="pool")
    np.testing.assert_allclose(found_BD, expected_BD, atol=1e-6)


def test_what_a_backbone_has_not_is_refused():
    unequal = modules.build("recurrent", V=5, D=4, U=6)
    with pytest.raises(FieldError, match="pool='pooler' is the backbone's own"):
        SentenceVector(unequal, pool="pooler")
    with pytest.raises(FieldError, match="this backbone's layers are not equally wide"):
        SentenceVector(unequal, eval_pool="last_two")
    with pytest.raises(FieldError, match="projection='cnn' is none of"):
        SentenceVector(BERT, projection="cnn")
