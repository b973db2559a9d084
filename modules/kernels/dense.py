"""The product of activations and a weight, whose weight gradient is one large product."""

import jax
import jax.numpy as jnp


@jax.custom_vjp
def dense(x_BLD, w_DF):
    """[B, L, D] times [D, F], with the gradient by `w_DF` in the form a CPU multiplies fastest."""
    return _product(x_BLD, w_DF)


def _product(x_BLD, w_DF):
    return jnp.einsum("BLD,DF->BLF", x_BLD, w_DF)


def _dense_backward(kept, dy_BLF):
    x_BLD, w_DF = kept

    def on_cpu(x_BLD, dy_BLF):
        # Whole operands in two dimensions: fused into its transpose, what makes x would be made
        # anew in an order that suits no cache.  A small transpose pays for a faster product.
        whole = jax.lax.optimization_barrier
        x_RD, dy_RF = (whole(each).reshape(-1, each.shape[-1]) for each in (x_BLD, dy_BLF))
        x_DR = whole(x_RD.T) if x_RD.shape[1] < dy_RF.shape[1] else x_RD.T
        return x_DR @ dy_RF

    def elsewhere(x_BLD, dy_BLF):
        return jnp.einsum("BLD,BLF->DF", x_BLD, dy_BLF)

    dw_DF = jax.lax.platform_dependent(x_BLD, dy_BLF, cpu=on_cpu, default=elsewhere)
    return jnp.einsum("BLF,DF->BLD", dy_BLF, w_DF), dw_DF


# Not `dense` within: a policy of what to keep (`REMAT`) sees products, but not through a rule.
dense.defvjp(lambda x_BLD, w_DF: (_product(x_BLD, w_DF), (x_BLD, w_DF)), _dense_backward)
