"""The time of a step is told by the lines that its operations come from."""

import pathlib

import pytest

from pretrain.aot import source_lines, tpu_specs
from pretrain.aot.hlo import Program

SUM = 'add(%x, %x), metadata={{op_name="jit(step)/{}add" stack_frame_id={}}}'
TEXT = f"""HloModule jit_step, is_scheduled=true

FileNames
1 "{pathlib.Path.cwd()}/modules/a.py"
2 "/elsewhere.py"

FunctionNames
1 "f"
2 "g"

FileLocations
1 {{file_name_id=1 function_name_id=2 line=7 end_line=7 column=1 end_column=9}}
2 {{file_name_id=2 function_name_id=1 line=80 end_line=80 column=1 end_column=9}}

StackFrames
1 {{file_location_id=2 parent_frame_id=1}}
2 {{file_location_id=1 parent_frame_id=2}}


%unused (y: f32[8]) -> f32[8] {{
  ROOT %y = f32[8]{{0}} parameter(0)
}}

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
  %a = f32[8]{{0}} {SUM.format("jvp()/", 2)}
  %b = f32[8]{{0}} {SUM.format("jvp()/", 2)}
  %c = f32[8]{{0}} {SUM.format("transpose(jvp())/", 2)}
  ROOT %d = f32[8]{{0}} copy(%c)
}}
"""


def test_operations_are_added_up_by_line_and_pass():
    chip = tpu_specs.CHIPS["v5e"]
    shares = source_lines.list_shares(Program(TEXT), chip)
    found = {x.source: (x.launches, x.flops, x.bytes_accessed) for x in shares}
    line = "modules/a.py:7"
    assert found == {line: (2, 0, 192), f"{line}, backwards": (1, 0, 96), "copy": (1, 0, 64)}
    assert [x.source for x in shares] == [line, f"{line}, backwards", "copy"]
    assert shares[0].seconds * chip.bandwidth == pytest.approx(192)
    assert [row.split()[-1] for row in source_lines.format_table(shares, 1)] == ["source", line]
