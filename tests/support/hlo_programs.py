"""Programs for the tests of `pretrain.aot`: compiled here, or as a TPU's compiler writes them."""

import functools

import jax
import jax.numpy as jnp

from pretrain.aot import hlo

F32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)


def compile_program(f, *args) -> hlo.Program:
    """Compiles `f` for this machine and parses the result."""
    return hlo.Program(jax.jit(f).lower(*args).compile().as_text())


def count_total(count, program: hlo.Program) -> float:
    """Returns the sum of `count` over all that a program executes."""
    return sum(
        times * count(program, name, i)
        for name, times in program.executions()
        for i in program.computations[name].values()
    )


def chain(x, ws):
    """Multiplies x by each w, with a tanh after each."""
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]


# A collective in pieces, a reduce-scatter, a loop unrolled by two, and a batch of products.
TPU = """HloModule jit_step, is_scheduled=true

%gathered (param_0: bf16[4,64]) -> bf16[16,64] {
  %param_0 = bf16[4,64]{1,0:T(8,128)(2,1)} parameter(0)
  %gather.1 = bf16[16,64]{1,0:T(8,128)(2,1)} all-gather(%param_0), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %start = (bf16[4,64]{1,0}, bf16[16,64]{1,0}, u32[]{:S(2)}) custom-call(%gather.1), custom_call_target="AsyncCollectiveStart"
}

%beside (param_0.1: bf16[4,64], param_1: f32[8,64]) -> (bf16[16,64], f32[8,64]) {
  %param_0.1 = bf16[4,64]{1,0:T(8,128)(2,1)} parameter(0)
  %param_1 = f32[8,64]{1,0:T(8,128)} parameter(1)
  %gather.2 = bf16[16,64]{1,0:T(8,128)(2,1)} all-gather(%param_0.1), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}, frontend_attributes={chain_id="0"}
  %more = f32[8,64]{1,0:T(8,128)} negate(%param_1)
  ROOT %both = (bf16[16,64]{1,0:T(8,128)(2,1)}, f32[8,64]{1,0:T(8,128)}) tuple(%gather.2, %more)
}

%scattered (param_0.2: f32[16,64]) -> f32[4,64] {
  %param_0.2 = f32[16,64]{1,0:T(8,128)} parameter(0)
  %reduced = f32[16,64]{1,0:T(8,128)} all-reduce(%param_0.2), channel_id=2, replica_groups={{0,1,2,3}}, to_apply=%sum
  %zero = u32[] constant(0)
  ROOT %part = f32[4,64]{1,0:T(8,128)} dynamic-slice(%reduced, %zero, %zero), dynamic_slice_sizes={4,64}
}

%row (param_0.3: f32[12,8,128], param_1.3: s32[]) -> f32[1,8,128] {
  %param_0.3 = f32[12,8,128]{2,1,0:T(8,128)} parameter(0)
  %param_1.3 = s32[]{:T(128)} parameter(1)
  %zero.1 = s32[]{:T(128)} constant(0)
  ROOT %cut = f32[1,8,128]{2,1,0:T(8,128)} dynamic-slice(%param_0.3, %param_1.3, %zero.1, %zero.1), dynamic_slice_sizes={1,8,128}
}

%into (param_0.4: f32[12,8,128], param_1.4: f32[1,8,128], param_2.4: s32[]) -> f32[12,8,128] {
  %param_0.4 = f32[12,8,128]{2,1,0:T(8,128)} parameter(0)
  %param_1.4 = f32[1,8,128]{2,1,0:T(8,128)S(1)} parameter(1)
  %param_2.4 = s32[]{:T(128)} parameter(2)
  %zero.2 = s32[]{:T(128)} constant(0)
  ROOT %put = f32[12,8,128]{2,1,0:T(8,128)} dynamic-update-slice(%param_0.4, %param_1.4, %param_2.4, %zero.2, %zero.2)
}

%body (state: (s32[], f32[12,8,128], f32[12,8,128])) -> (s32[], f32[12,8,128], f32[12,8,128]) {
  %two = s32[]{:T(128)} constant(2)
  %state = (s32[]{:T(128)}, f32[12,8,128]{2,1,0:T(8,128)}, f32[12,8,128]{2,1,0:T(8,128)}) parameter(0)
  %n = s32[]{:T(128)} get-tuple-element(%state), index=0
  %copied = s32[]{:T(128)} copy(%n)
  %next = s32[]{:T(128)} add(%copied, %two)
  %from = f32[12,8,128]{2,1,0:T(8,128)} get-tuple-element(%state), index=1
  %to = f32[12,8,128]{2,1,0:T(8,128)} get-tuple-element(%state), index=2
  %read = f32[1,8,128]{2,1,0:T(8,128)S(1)} fusion(%from, %n), kind=kLoop, calls=%row
  %written = f32[12,8,128]{2,1,0:T(8,128)} fusion(%to, %read, %n), kind=kLoop, calls=%into
  ROOT %after = (s32[]{:T(128)}, f32[12,8,128]{2,1,0:T(8,128)}, f32[12,8,128]{2,1,0:T(8,128)}) tuple(%next, %from, %written)
}

%condition (state.1: (s32[], f32[12,8,128], f32[12,8,128])) -> pred[] {
  %bound = s32[]{:T(128)} constant(11)
  %state.1 = (s32[]{:T(128)}, f32[12,8,128]{2,1,0:T(8,128)}, f32[12,8,128]{2,1,0:T(8,128)}) parameter(0)
  %n.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  ROOT %below = pred[]{:T(512)} compare(%n.1, %bound), direction=LT
}

ENTRY %main (w: bf16[4,64], x: f32[8,64], g: f32[16,64], s: (s32[], f32[12,8,128], f32[12,8,128]), q: bf16[4,128,2,64], k: bf16[4,128,2,64]) -> f32[4,64] {
  %w = bf16[4,64]{1,0:T(8,128)(2,1)} parameter(0), metadata={op_name="state.params[\\'w\\']"}
  %x = f32[8,64]{1,0:T(8,128)} parameter(1), metadata={op_name="batch[\\'x\\']"}
  %g = f32[16,64]{1,0:T(8,128)} parameter(2)
  %s = (s32[]{:T(128)}, f32[12,8,128]{2,1,0:T(8,128)}, f32[12,8,128]{2,1,0:T(8,128)}) parameter(3)
  %q = bf16[4,128,2,64]{1,3,2,0:T(8,128)(2,1)} parameter(4)
  %k = bf16[4,128,2,64]{1,3,2,0:T(8,128)(2,1)} parameter(5)
  %a = (bf16[4,64]{1,0}, bf16[16,64]{1,0}, u32[]{:S(2)}) fusion(%w), kind=kCustom, calls=%gathered
  %b = (bf16[16,64]{1,0:T(8,128)(2,1)}, f32[8,64]{1,0:T(8,128)}) fusion(%w, %x), kind=kOutput, calls=%beside
  %loop = (s32[]{:T(128)}, f32[12,8,128]{2,1,0:T(8,128)}, f32[12,8,128]{2,1,0:T(8,128)}) while(%s), condition=%condition, body=%body
  %scores = bf16[4,2,128,128]{2,3,1,0:T(8,128)(2,1)S(1)} convolution(%q, %k), window={size=4x2 stride=3x1 lhs_dilate=4x2}, dim_labels=0b1f_0o1i->01bf
  ROOT %r = f32[4,64]{1,0:T(8,128)} fusion(%g), kind=kCustom, calls=%scattered
}
"""  # noqa: E501
