"""Gradients of a deep stack are those that its theory says."""

from pretrain.diagnostics.deep_stack import measure_layers

SIZES = dict(seed=0, N=12, D=16, B=8, norm=False)


def test_a_sigmoid_s_gradients_vanish_downwards_without_residuals():
    plain_N, residual_N = (
        measure_layers("sigmoid", "xavier", residual=residual, **SIZES)
        for residual in (False, True)
    )
    assert plain_N.shape == residual_N.shape == (12,)
    assert plain_N[0] < 1e-3 * plain_N[-1]
    assert 0.1 < residual_N[0] / residual_N[-1] < 10


def test_small_weights_leave_no_layer_a_gradient_without_residuals():
    plain_N, residual_N = (
        measure_layers("tanh", "normal", residual=residual, **SIZES) for residual in (False, True)
    )
    assert plain_N.max() < 1e-10
    assert residual_N.min() > 1e-3
