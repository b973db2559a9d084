"""Calls into a GPU's libraries have the FLOPs of the products that they stand for."""

import pytest

from pretrain.aot import custom_calls
from pretrain.aot.hlo import Program
from pretrain.aot.hlo_cost import count_bytes_accessed, count_flops

SCORES = '"intermediate_tensor_shape": {"dimensions": ["2", "3", "8", "16"]}, "mask_type": '
CALLS = {  # target, results, operands, configuration -> FLOPs, bytes moved
    "a product": (
        "__cublas$lt$matmul",
        "(bf16[8,16]{1,0}, s8[4096]{0})",
        ("bf16[8,32]{1,0}", "bf16[16,32]{1,0}"),
        '"lhs_contracting_dimensions":["1"]',
        (2 * 8 * 16 * 32, 2 * (8 * 16 + 8 * 32 + 16 * 32)),
    ),
    "attention": (
        "__cudnn$fmhaSoftmax",
        "(bf16[2,3,8,4]{3,1,2,0}, u8[0]{0})",
        ("bf16[2,8,3,4]{3,2,1,0}", "bf16[2,16,3,4]{3,2,1,0}"),
        SCORES + '"NO_MASK"',
        (2 * 2 * (2 * 3 * 8 * 16) * 4, 2 * (2 * 192 + 384)),
    ),
    "causal attention, backwards": (
        "__cudnn$fmhaSoftmaxBackward",
        "(bf16[2,3,8,4]{3,1,2,0}, u8[0]{0})",
        ("bf16[2,8,3,4]{3,2,1,0}",),
        SCORES + '"PADDING_CAUSAL"',
        (5 * (2 * 3 * 8 * 16) * 4, 2 * 2 * 192),
    ),
    "a kernel in Pallas": (
        "tpu_custom_call",
        "(bf16[8,16]{1,0}, s8[16]{0})",
        ("bf16[8,32]{1,0}",),
        '"custom_call_config":{"body":"TUz","cost_estimate":{"flops":"4096","transcendentals":"8"}}',
        (4096, 2 * (8 * 16 + 8 * 32) + 16),
    ),
    "a kernel in Pallas, on a GPU": (
        "mosaic_gpu_v2",
        "bf16[8,16]{1,0}",
        ("bf16[8,32]{1,0}",),
        '"kernel_hash":"x"}, metadata={op_name="jit(f)/jvp(forward_flops_4096)/body/mpmd_map"',
        (4096, 2 * (8 * 16 + 8 * 32)),
    ),
    "splash attention, backwards": (
        "tpu_custom_call",
        "bf16[8,16]{1,0}",
        ("bf16[8,32]{1,0}",),
        '"custom_call_config":{"body":"TUz"}}, metadata={op_name="jit(f)/transpose(jvp('
        'splash_flops_4096))/vmap(g)/splash_mha_dq_segmented_no_residuals/pallas_call"',
        (6144, 2 * (8 * 16 + 8 * 32)),
    ),
    "no library": ("Sharding", "f32[4]{0}", ("f32[4]{0}",), "", (0, 32)),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_is_counted_without_its_workspace(case):
    target, results, operands, config, expected = CALLS[case]
    names = [f"%p{n}" for n in range(len(operands))]
    lines = [
        f"  {n} = {x} parameter({k})" for k, (n, x) in enumerate(zip(names, operands, strict=True))
    ]
    call = f'custom-call({", ".join(names)}), custom_call_target="{target}"'
    lines += [f"  ROOT %call = {results} {call}, backend_config={{{config}}}"]
    program = Program("\n".join(["ENTRY %main (p: f32[]) -> f32[] {", *lines, "}"]))
    i = program.computations["main"]["call"]
    is_library = target != "Sharding"
    assert custom_calls.count_calls(program) == ({target: 1} if is_library else {})
    assert (count_flops(program, "main", i), count_bytes_accessed(program, "main", i)) == expected
