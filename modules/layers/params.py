"""Parameters: their initial values, their sharding, and what an optimizer needs to know of them.

A module says where it makes a parameter whether weight decay applies and how deep it lies.
Nothing reads that from a parameter's name.
"""

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules import plugins
from modules.activation_sharding import constrain_sharding, num_shards
from modules.kernels.gelu import gelu

normal = nn.initializers.normal
zeros = nn.initializers.zeros_init()
ones = nn.initializers.ones_init()


# The backward pass keeps the bfloat16 input, 2 bytes an entry; autodiff would keep 6 to 10.
# `prevent_cse` guards against nothing within a scan over layers, and would block fusion.
keep_input = functools.partial(jax.checkpoint, prevent_cse=False)
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    # The tanh form of the released BERT, GPT and XLNet; erf's differs by up to 5e-4.
    "gelu": gelu,
    "gelu_erf": keep_input(lambda x: 0.5 * x * (1 + jax.lax.erf(x * 2**-0.5))),
    "relu": jax.nn.relu,
}


DTYPES = ("float32", "bfloat16", "float16", "float64")


def check_choice(module: nn.Module, field: str, known: Iterable[str]) -> None:
    """Raises a FieldError that names the field unless its value is a known one."""
    value = getattr(module, field)
    if value not in known:
        raise plugins.FieldError(f"{field}={value!r} is none of {', '.join(known)}")


def check_choices(module: nn.Module, **known: Iterable[str]) -> None:
    """Checks several fields, by name, see `check_choice`."""
    for field, values in known.items():
        check_choice(module, field, values)


# The scale is a standard deviation; of "truncated" before values beyond twice that are drawn again
# (as TensorFlow's), of "uniform" the limit on both sides.
INITIALIZERS: dict[str, Callable[[float], Callable]] = {
    "normal": normal,
    "truncated": nn.initializers.truncated_normal,
    "uniform": lambda scale: (
        lambda rng, shape, dtype: jax.random.uniform(rng, shape, dtype, -scale, scale)
    ),
}


def initializer(kind: str, scale: float) -> Callable:
    """Returns one of `INITIALIZERS` of this scale."""
    return INITIALIZERS[kind](scale)


# --- parameters ------------------------------------------------------------------------------

Path = tuple[str, ...]
Depth = int | Sequence[int]


@dataclasses.dataclass(frozen=True)
class ParamInfo:
    """Facts of a parameter for an optimizer; a leaf of a tree that parallels the parameters.

    Attributes:
        decay: weight decay applies.
        layers_above: layers of the backbone above it: 0 for the top layer's, N for the embedding
            under N layers, -1 for what lies above all layers, as a head.  A stack of layers,
            which is one array, has a tuple along its leading dimension.
        is_table: its rows are looked up: it costs no product.
        task: the one of several tasks that it belongs to: steps without that leave it as it is.
            "": it belongs to all of them.
        by_rows: it is read by `row_reads.read_rows`, where few rows will do.
    """

    decay: bool
    layers_above: int | tuple[int, ...] = -1
    is_table: bool = False
    task: str = ""
    by_rows: bool = False


def param(
    module: nn.Module,
    name: str,
    init: Callable,
    shape: Sequence[int],
    *,
    decay: bool,
    is_table: bool = False,
    by_rows: bool = False,
    depth: Depth | None = None,
    dtype: str | None = None,
) -> jax.Array:
    """Makes or reads a float32 parameter of a module, and records what it is.

    Args:
        module: the module, within `setup` or a compact method.
        name: ends in the letters of its dimensions, as `wq_DHK`; they decide its sharding.
        init: a Linen initialiser.
        decay: weight decay applies.  As in the codes of BERT, GPT-1 and XLNet, it does to
            matrices, kernels and embeddings.  It does not to biases, to a norm's scale and offset,
            nor to other numbers that are added or that scale.
        is_table: its rows are looked up: it costs no product.
        by_rows: the module reads it by `row_reads.read_rows`, where few rows will do.
        depth: see `set_depths`; None: that of the module.
        dtype: the dtype to compute in.  The parameter is cast to it and, by its letters,
            constrained to its sharding; None: it stays as it is stored.
    """
    value = module.param(name, init, tuple(shape), jnp.float32)
    # Not a `flax` metadata box: the tree of parameters stays plain arrays, as checkpoints have it.
    if (record := _record.get()) is not None:
        record.decay[record.path_of(module, name)] = decay
        if is_table:
            record.tables.add(record.path_of(module, name))
        if by_rows:
            record.by_rows.add(record.path_of(module, name))
    if depth is not None:
        set_depths(module, **{name: depth})
    return value if dtype is None else shard_param(name, value).astype(dtype)


STATISTICS = "statistics"  # the collection of what `record_statistics` leaves for the training step


def statistic(module: nn.Module, name: str, init: Callable, shape: Sequence[int]) -> jax.Array:
    """Makes or reads what is measured of the batches and not learned, as a running average."""
    # It lies among the parameters, so that all that saves, restores, averages or evaluates these
    # has it, too.  It has no gradient and no decay; `record_statistics` changes it.
    return jax.lax.stop_gradient(param(module, name, init, shape, decay=False))


def record_statistics(module: nn.Module, **values: jax.Array) -> None:
    """Records what a module's statistics are after this batch, by name."""
    # Parameters cannot be changed while they are read: the training step puts these in the place
    # of the old ones, and nothing else does.  What is not trained is not to be saved.
    if not module.is_initializing():
        for name, value in values.items():
            latest = lambda _, new: jax.lax.stop_gradient(new)  # noqa: E731
            module.sow(STATISTICS, name, value, reduce_fn=latest, init_fn=lambda: None)


def set_depths(module: nn.Module, **depths: Depth) -> None:
    """Records how deep children of a module lie, counted within the module.

    An embedding lies at 0 and layer n, from 1, at n.  What is not mentioned lies above all layers.
    `set_depths(self, embedding=0, lstm_0=1, lstm_1=2)` is for layers of unequal sizes; the
    stacked parameters of equal layers have a depth for each: `layers=(1, 2, 3)`.

    Args:
        module: the module, within `setup` or a compact method.
        depths: the name of a submodule, or of a parameter -> the depth of all within.
    """
    if (record := _record.get()) is not None:
        for name, depth in depths.items():
            record.depth[record.path_of(module, name)] = (record.path_of(module), depth)


def set_tasks(module: nn.Module, **tasks: str) -> None:
    """Says which one of several tasks a submodule's parameters belong to.

    Args:
        module: the module, within `setup` or a compact method.
        tasks: the name of a submodule, or of a parameter -> the task.
    """
    if (record := _record.get()) is not None:
        for name, task in tasks.items():
            record.tasks[record.path_of(module, name)] = task


@dataclasses.dataclass(frozen=True)
class Record:
    """Facts of parameters that modules state during initialization, see `recording`."""

    decay: dict[Path, bool] = dataclasses.field(default_factory=dict)
    depth: dict[Path, tuple[Path, Depth]] = dataclasses.field(default_factory=dict)
    tables: set[Path] = dataclasses.field(default_factory=set)
    by_rows: set[Path] = dataclasses.field(default_factory=set)
    tasks: dict[Path, str] = dataclasses.field(default_factory=dict)
    root: Path = ()

    def path_of(self, module: nn.Module, *names: str) -> Path:
        """Returns the keys that lead to a module, or to what it names, among all parameters."""
        return (*self.root, *module.path, *names)

    def infos(self, params: Any) -> Any:
        """Builds a tree of `ParamInfo` that parallels the parameters, arrays or their shapes."""
        # Depths are counted within their module, from the input; an optimizer counts from the top.
        tops: dict[Path, int] = {}
        for module, depth in self.depth.values():
            deepest = depth if isinstance(depth, int) else max(depth, default=0)
            tops[module] = max(tops.get(module, 0), deepest)

        def info(path, x) -> ParamInfo:
            names = tuple(key.key for key in path)
            above = self._layers_above(names, tops)
            # One made with Linen's own `self.param` says nothing: it decays if a layer's has two
            # dimensions or more, and has the depth of its module.
            is_stacked = isinstance(above, tuple)
            decay = self.decay.get(names, x.ndim - is_stacked > 1)
            tasks = (self.tasks.get(names[:end], "") for end in range(len(names), 0, -1))
            task = next(filter(None, tasks), "")
            return ParamInfo(decay, above, names in self.tables, task, names in self.by_rows)

        return jax.tree_util.tree_map_with_path(info, params)

    def _layers_above(self, names: Path, tops: dict[Path, int]) -> int | tuple[int, ...]:
        for end in range(len(names), 0, -1):  # the nearest module that has a depth counts
            if names[:end] in self.depth:
                module, depth = self.depth[names[:end]]
                top = tops[module]
                return top - depth if isinstance(depth, int) else tuple(top - n for n in depth)
        return -1


_record: contextvars.ContextVar[Record | None] = contextvars.ContextVar("record", default=None)


@contextlib.contextmanager
def recording() -> Iterator[Record]:
    """Records what modules say of the parameters that are initialized, or traced so, inside."""
    token = _record.set(Record())
    try:
        yield _record.get()  # type: ignore[misc]
    finally:
        _record.reset(token)


@contextlib.contextmanager
def recording_within(module: nn.Module, name: str) -> Iterator[None]:
    record = _record.get()
    # Whoever has no parent has an empty path: what it records is put under the child's.
    root = () if record is None else record.path_of(module, name)
    token = _record.set(record and dataclasses.replace(record, root=root))
    try:
        yield
    finally:
        _record.reset(token)


def shard_param(name: str, w: jax.Array) -> jax.Array:
    """Constrains a parameter, and thereby its gradient, to the sharding of its name's letters."""
    # Without it every device would all-reduce the full gradient and keep only its shard.
    return constrain_sharding(w, name.rpartition("_")[2])


def mark_inputs(module: nn.Module, x_BLD):
    """Marks what a backbone's first layer reads, so that gradients by it can be taken."""
    # `perturb` adds no operation where no perturbations are passed.  While parameters are
    # initialized it would make one: what is not trained is not to be saved.
    return x_BLD if module.is_initializing() else module.perturb("inputs", x_BLD)


def embed_tokens(module: nn.Module, table_VD, tokens, dtype: str):
    """Looks up the rows of a backbone's tokens [B, ..., D], which its first layer reads."""
    x_BLD = reshard_embedding_rows(table_VD[tokens].astype(dtype), len(table_VD))
    return mark_inputs(module, x_BLD)


def reshard_embedding_rows(x_BLD, V: int):
    """Reshards embedding rows [B, ..., D] from the sharding of a table of V to the activations'."""
    rest = "_" * (x_BLD.ndim - 2)
    # The rows are communicated if they are fewer than table entries per device, else the table.
    if x_BLD.size > V * x_BLD.shape[-1] * num_shards("B"):
        return constrain_sharding(x_BLD, f"B{rest}D")
    # A mesh axis goes to the first letter that asks for it.  With D in front the rows stay split by
    # width, as the table is, until the second constraint moves them.
    x_BLD = jnp.moveaxis(constrain_sharding(jnp.moveaxis(x_BLD, -1, 0), "DB" + rest), 0, -1)
    return constrain_sharding(x_BLD, f"B{rest}D")
