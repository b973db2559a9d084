"""A step takes at least the longer of its products, its traffic and its collectives."""

import pytest

from pretrain.aot import hlo, roofline
from tests.support.slices import grid_devices, make_slice

PRODUCT = """
ENTRY %main (a: bf16[4096,{K}], b: bf16[{K},4096]) -> bf16[4096,4096] {{
  %a = bf16[4096,{K}]{{1,0:T(8,128)(2,1)}} parameter(0)
  %b = bf16[{K},4096]{{1,0:T(8,128)(2,1)}} parameter(1)
  %c = bf16[4096,4096]{{1,0:T(8,128)(2,1)}} dot(%a, %b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT %d = bf16[4096,4096]{{1,0:T(8,128)(2,1)}} all-reduce(%c), replica_groups={{{{0,1,2,3}}}}
}}
"""  # noqa: E501


@pytest.mark.parametrize(("K", "bound"), [(8192, "products"), (128, "memory")])
def test_an_operation_takes_the_longer_of_products_and_traffic(K, bound):
    program = hlo.Program(PRODUCT.format(K=K))
    estimate = roofline.estimate(program, make_slice("v5e", 4, 4), grid_devices(4, 4))
    products, memory = 2 * 4096**2 * K / 197e12, 2 * (2 * 4096 * K + 4096**2) / 819e9
    assert (estimate.products_seconds, estimate.memory_seconds) == pytest.approx((products, memory))
    expected = {"products": products, "memory": memory}[bound]
    assert estimate.operations_seconds == pytest.approx(expected)
    # Along a line of four each chip receives 2 * 3/4 of the sum, over one link.
    assert estimate.links_seconds == pytest.approx(2 * 3 / 4 * 2 * 4096**2 / 50e9)
    assert estimate.seconds == max(estimate.operations_seconds, estimate.links_seconds)
