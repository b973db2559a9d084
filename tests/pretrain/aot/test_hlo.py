"""Arrays take whole tiles, and computations count as often as they run."""

import jax
import pytest

from pretrain.aot import hlo
from tests.support.hlo_programs import F32, TPU, chain, compile_program

# As a TPU's compiler reports them of programs that it was given.
SIZES = {
    "f32[24,64]{1,0:T(8,128)}": 12 * 2**10,
    "f32[30522]{0:T(1024)}": 120 * 2**10,
    "f32[512,64]{0,1:T(8,128)}": 128 * 2**10,
    "bf16[256,64]{0,1:T(8,128)(2,1)}": 32768,
    "bf16[256,1024]{0,1:T(8,128)(2,1)}": 524288,
    "f32[512,64]{1,0}": 128 * 2**10,
    "pred[7]{0}": 7,
    "u32[]{:S(2)}": 4,
}


def test_arrays_take_whole_tiles_of_memory():
    for text, size in SIZES.items():
        (groups,) = hlo.ARRAY.findall(text)
        assert hlo.parse_array(*groups).bytes == size, text


def test_loop_bodies_execute_trip_count_times():
    program = compile_program(chain, F32((4, 8)), F32((5, 8, 8)))
    assert max(dict(program.executions()).values()) == 5
    assert not program.data_dependent_loops()


def test_unrolled_loops_execute_less_often():
    assert dict(hlo.Program(TPU).executions())["body"] == 6  # counters 0, 2, ..., 10 are below 11


def test_data_dependent_loops_are_named():
    def loop(a, b):
        return jax.lax.while_loop(lambda x: x.sum() < 10, lambda x: x @ b, a)

    program = compile_program(loop, F32((8, 8)), F32((8, 8)))
    assert [name.split("/")[-1] for name in program.data_dependent_loops()] == ["while"]


@pytest.mark.parametrize(
    ("attributes", "names"), [("body=%a", ["a"]), ("body=a, condition=%c", ["a"]), ("x={%y}", [])]
)
def test_callees_are_those_of_the_attributes_asked_for(attributes, names):
    assert hlo.Instruction("i", "while", (), "", attributes).callees("body") == names


def test_words_of_a_kernel_over_several_lines_are_one_instruction():
    text = """ENTRY %main (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %call = f32[4]{0} custom-call(%p), custom_call_target="a", frontend_attributes={words={
"size": "{\\"rows\\": 512}"
}}, metadata={op_name="behind"}
}
"""
    assert 'op_name="behind"' in hlo.Program(text).roots["main"].attributes


def test_an_element_of_a_tuple_is_an_operand_of_its_own():
    text = """ENTRY %main (p: f32[4]) -> f32[2] {
  %p = f32[4]{0} parameter(0)
  %pair = (f32[2]{0}, bf16[8]{0}) custom-call(%p), custom_call_target="a"
  ROOT %sum = f32[2]{0} add(%pair#0, %pair#1), metadata={op_name="behind"}
}
"""
    program = hlo.Program(text)
    named = program.computations["main"]
    assert program.roots["main"].operands == ["pair#0", "pair#1"]
    elements = [(named[x].op, named[x].index, named[x].bytes) for x in ("pair#0", "pair#1")]
    assert elements == [("get-tuple-element", 0, 8), ("get-tuple-element", 1, 16)]
    assert named["pair#1"].operands == ["pair"]
