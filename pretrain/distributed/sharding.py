"""Shardings of arrays, read off their names: {D: fsdp, H: tensor} splits `wq_DHK` so."""

import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from pretrain.runtime.errors import UserError

AXES = ("data", "fsdp", "tensor")

# One table: a dimension's letter, and the mesh axes it is split over where they divide it.
RULES: dict[str, tuple[str, ...]] = {
    "B": ("data", "fsdp"),
    "T": ("tensor",),
    "D": ("fsdp",),
    "H": ("tensor",),
    "F": ("tensor",),
    "V": ("tensor",),
    "U": ("tensor",),
    "X": ("fsdp",),
}


def make_mesh(data: int = -1, fsdp: int = 1, tensor: int = 1, devices=None) -> Mesh:
    """Arranges the devices in a (data, fsdp, tensor) grid; -1: all that remain.

    Args:
        data: devices that rows are divided over, and nothing else.
        fsdp: devices that both rows and parameters are divided over.
        tensor: devices that heads and the like are divided over; between the layers of a
            transformer of one stream the positions of a row, where they divide.

    Raises:
        UserError: the grid does not use every device exactly once, or `data` does not divide over
            the slices of TPUs.
    """
    devices = jax.devices() if devices is None else devices
    grid = arrange_devices(divide_devices(len(devices), data, fsdp, tensor), devices)
    # Auto, not JAX's default of Explicit: the compiler places what nobody constrains.
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def divide_devices(count: int, data: int = -1, fsdp: int = 1, tensor: int = 1) -> list[int]:
    """Returns the sizes of `AXES` in a grid of so many devices; see `make_mesh`."""
    shape = [data, fsdp, tensor]
    known = int(np.prod([n for n in shape if n != -1]))
    if shape.count(-1) == 1 and count % known == 0:
        shape[shape.index(-1)] = count // known
    if int(np.prod(shape)) != count:
        asked = ", ".join(f"{a}={n}" for a, n in zip(AXES, (data, fsdp, tensor), strict=True))
        raise UserError(f"mesh {asked} does not use all of {count} devices exactly once")
    return shape


def plan_layout(count: int, data: int = -1, fsdp: int = 1, tensor: int = 1) -> "Layout":
    """Returns the layout of a mesh whose devices have not started; see `make_mesh`.

    Args:
        count: of all devices; 0: unknown, an axis of -1 is then of one.
    """
    axes = [data, fsdp, tensor]
    shape = divide_devices(count, *axes) if count else [max(n, 1) for n in axes]
    return Layout(AbstractMesh(tuple(shape), AXES))


def arrange_devices(shape: Sequence[int], devices: Sequence) -> np.ndarray:
    """Puts devices in a grid so that the links of its inner axes are quick.

    Args:
        shape: sizes of `AXES`.

    Raises:
        UserError: there are several slices of TPUs, over which `data` does not divide.
    """
    slices, (data, *inner) = len({getattr(x, "slice_index", 0) for x in devices}), shape
    # A torus of other sizes than the recipe's mesh has its axes split.
    options: Any = dict(devices=devices, allow_split_physical_axes=True)
    if slices > 1 and data % slices == 0:
        # Sums of gradients alone pass between slices, over the data centre's network.
        within, between = (data // slices, *inner), (slices, 1, 1)
        return mesh_utils.create_hybrid_device_mesh(within, between, **options)
    # GPUs of several hosts, each of which is a slice, may keep their order.
    if slices > 1 and devices[0].platform == "tpu":
        raise UserError(
            f"mesh.data={data} does not divide over {slices} slices of TPUs: make it a multiple "
            f"of {slices}"
        )
    return mesh_utils.create_device_mesh(shape, **options)


def read_letters(path) -> str:
    """Returns the dimensions in the name of an array of a tree, see `parse_letters`."""
    return parse_letters(jax.tree_util.keystr(path[-1:], simple=True) if path else "")


def parse_letters(name: str) -> str:
    """Returns the dimensions in an array's name: "DHK" of `.../attention/wq_DHK`; "": none."""
    match = re.search(r"_([0-9A-Z]+)$", name)
    return match[1] if match else ""


class Layout:
    """One mesh and the table: every array's place by its letters."""

    def __init__(self, mesh: Mesh | AbstractMesh):
        # As either: they share `shape` and `size`, and JAX types them apart.
        self.mesh: Any = mesh

    @property
    def device(self) -> jax.Device:
        """Returns one of the mesh's devices; of a mesh that has none, one of this machine."""
        is_abstract = isinstance(self.mesh, AbstractMesh)
        return jax.devices()[0] if is_abstract else self.mesh.devices.flat[0]

    def make_spec(self, letters: str, shape: tuple[int, ...]) -> PartitionSpec:
        """Gives each axis to the first dimension that asks for it and that it divides."""
        if len(letters) > len(shape):
            return PartitionSpec()  # a summary of a larger array
        used: set[str] = set()
        # Leading dimensions without a letter (stacked layers) stay whole.
        spec: list[Any] = [None] * (len(shape) - len(letters))
        for letter, size in zip(letters, shape[len(spec) :], strict=True):
            axes: list[str] = []
            for axis in RULES.get(letter, ()):
                share = self.count_devices(*axes, axis)
                # An axis splits one dimension of an array only, and an axis of 1 splits nothing.
                if axis not in used and self.mesh.shape[axis] > 1 and size % share == 0:
                    axes.append(axis)
            used |= set(axes)
            spec.append(tuple(axes) or None)
        return PartitionSpec(*spec)

    def count_devices(self, *axes: str) -> int:
        return int(np.prod([self.mesh.shape[axis] for axis in axes]))

    def make_shardings(self, tree):
        """Returns the NamedShardings of a tree: parameters, moments, carry and batches alike."""
        return jax.tree_util.tree_map_with_path(
            lambda path, x: NamedSharding(self.mesh, self.make_spec(read_letters(path), x.shape)),
            tree,
        )

    def add_shardings(self, tree):
        """Returns jax.ShapeDtypeStructs of the shapes in a tree, with their shardings."""
        return jax.tree.map(
            lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
            tree,
            self.make_shardings(tree),
        )

    def constrain(self, x: jax.Array, letters: str) -> jax.Array:
        """Constrains an activation inside a jitted function to the sharding of its letters."""
        if self.mesh.size == 1:  # no constraint in the program: one device has nothing to choose
            return x
        sharding = NamedSharding(self.mesh, self.make_spec(letters, x.shape))
        return jax.lax.with_sharding_constraint(x, sharding)

    def num_shards(self, letter: str) -> int:
        """Counts the devices that a dimension of this letter is split over where it divides."""
        return self.count_devices(*RULES.get(letter, ()))

    def reduce_to_shards(self, shares_B: jax.Array, letters: str) -> jax.Array:
        """Sums [num_shards("B"), ...] by a reduce-scatter along the axes that split the result."""
        # Written out, as the compiler would all-reduce the whole and keep a shard.
        if self.mesh.size == 1:
            return shares_B.sum(0)
        given = self.make_spec("B" + letters, shares_B.shape)
        result = self.make_spec(letters, shares_B.shape[1:])
        over = [axis for axis in RULES["B"] if self.count_devices(axis) > 1]
        split = {axis: n for n, axes in enumerate(result) for axis in over if axis in (axes or ())}

        def sum_own(x_B):
            x = x_B[0]
            for axis, n in split.items():
                # Stacked: a TPU scatters no other form.
                pieces = jnp.stack(jnp.split(x, self.count_devices(axis), n))
                x = jax.lax.psum_scatter(pieces, axis)
            return jax.lax.psum(x, [axis for axis in over if axis not in split])

        where: Any = dict(mesh=self.mesh, in_specs=given, out_specs=result, check_vma=False)
        return jax.shard_map(sum_own, **where)(shares_B)

    def map_shards(self, f, arrays, letters, results):
        """Calls `f`, from arrays to a list of results, on every device with its shards."""
        if self.mesh.size == 1:
            return f(*arrays)
        # By letters alone: the results have no shapes yet.
        specs, result_specs = (
            [PartitionSpec(*(RULES.get(letter) for letter in word)) for word in words]
            for words in (letters, results)
        )
        where: Any = dict(mesh=self.mesh, in_specs=tuple(specs), out_specs=result_specs)
        return jax.shard_map(lambda *x: list(f(*x)), **where, check_vma=False)(*arrays)

    def check_rows(self, B: int, parts: int = 1) -> None:
        """Raises UserError if B rows do not divide over the devices, dealt in so many parts."""
        if B % (parts * self.num_shards("B")):
            raise UserError(
                f"a batch of {B} rows does not divide over {self.num_shards('B')} devices"
                + (f" in {parts} parts" if parts > 1 else "")
            )

    def find_rows(self, B: int) -> slice:
        """Returns the rows of a global batch of B that this process feeds."""
        self.check_rows(B)
        sharding = NamedSharding(self.mesh, self.make_spec("B", (B,)))
        ranges = [
            x[0].indices(B) for x in sharding.addressable_devices_indices_map((B,)).values() if x
        ]
        return slice(min(start for start, _, _ in ranges), max(stop for _, stop, _ in ranges))

    def shard_batch(self, batch: dict[str, np.ndarray], B: int) -> dict[str, jax.Array]:
        """Puts this process's rows on its devices, as its part of global arrays."""
        shardings = self.make_shardings(batch)
        return {
            name: jax.make_array_from_process_local_data(shardings[name], x, (B, *x.shape[1:]))
            for name, x in batch.items()
        }
