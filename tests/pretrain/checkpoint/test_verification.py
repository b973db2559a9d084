"""Whatever befalls the files of a checkpoint, what is restored is right."""

import functools
import json
import logging
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pretrain.checkpoint import named_leaves, verification
from pretrain.checkpoint.manager import Checkpoints
from pretrain.runtime.errors import UserError


def state(seed):
    w_DF = jax.random.normal(jax.random.key(seed), (64, 256))
    backbone = {"w_DF": w_DF, "b_F": jnp.full((256,), seed, jnp.bfloat16)}
    return {"params": {"backbone": backbone}, "step": jnp.int32(seed)}


def save(workdir, *steps):
    """Checkpoints of `state(step)` in `workdir`; their folder."""
    checkpoints = Checkpoints(workdir, keep=9)
    for step in steps:
        checkpoints.save(step, state(step), {"at": step})
    checkpoints.close()
    return checkpoints.folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Puts a copy of such checkpoints, saved once, into a workdir; returns their folder."""
    once = functools.cache(lambda *steps: save(tmp_path_factory.mktemp("saved"), *steps))
    return lambda workdir, *steps: shutil.copytree(once(*steps), workdir / "checkpoints")


def restore(workdir):
    checkpoints = Checkpoints(workdir)
    found = checkpoints.restore(state(0))
    checkpoints.close()
    return found


def assert_is(found, step):
    assert found[1:] == ({"at": step}, step)
    jax.tree.map(np.testing.assert_array_equal, found[0], state(step))


def largest(step_folder):
    files = [path for path in step_folder.rglob("*") if path.is_file()]
    return max(files, key=lambda path: path.stat().st_size)


def truncate(step_folder):
    os.truncate(largest(step_folder), largest(step_folder).stat().st_size // 2)


def empty_folder(step_folder):
    shutil.rmtree(step_folder)
    step_folder.mkdir()


def break_json(step_folder):
    (step_folder / "record" / "metadata").write_text('{"leaves": {')


def edit_json(step_folder):
    path = step_folder / "record" / "metadata"
    path.write_text(json.dumps({**json.loads(path.read_text()), "position": {"at": 7}}))


def link_file(step_folder):
    path = largest(step_folder)
    os.symlink(path.rename(step_folder.parent.parent / "elsewhere"), path)


def link_step(step_folder):
    os.symlink(step_folder.rename(step_folder.parent.parent / "elsewhere"), step_folder)


def add_fifo(step_folder):
    os.mkfifo(step_folder / "state" / "pipe")


def list_json(step_folder):
    (step_folder / "record" / "metadata").write_text("[]")


def plain_file(step_folder):
    shutil.rmtree(step_folder)
    step_folder.write_text("")


DAMAGE = {
    truncate: "",
    empty_folder: "record/metadata: No such file",
    break_json: "record/metadata is not JSON at line 1, column 13",
    list_json: "record/metadata holds no record",
    edit_json: "its record of what was saved has been altered",
    link_file: "is a link or no regular file",
    link_step: "2 is a link",
    add_fifo: "state/pipe is a link or no regular file",
    plain_file: "record/metadata: Not a directory",
    lambda folder: largest(folder).unlink(): "",
    lambda folder: shutil.rmtree(folder / "state"): "state",
    lambda folder: (folder / "state" / "_METADATA").write_text("{"): "",
    lambda folder: (folder / "record" / "metadata").unlink(): "record/metadata",
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGE.items())
def test_a_damaged_step_is_moved_aside_and_the_older_restored(
    saved, tmp_path, caplog, damage, reason
):
    folder = saved(tmp_path, 1, 2)
    damage(folder / "2")
    with caplog.at_level(logging.WARNING):
        assert_is(restore(tmp_path), 1)
    warning = next(r.getMessage() for r in caplog.records if "is refused" in r.getMessage())
    assert f"{folder}/2 is refused: " in warning
    assert reason in warning
    assert sorted(os.listdir(folder)) == ["1"]
    assert os.listdir(tmp_path / "checkpoints-refused") == ["2"]


def test_a_flipped_bit_never_reaches_the_state(saved, tmp_path):
    folder = saved(tmp_path, 1, 2)
    path, draw = largest(folder / "2"), np.random.default_rng(0)
    whole, fell_back = path.read_bytes(), 0
    for bit in draw.integers(len(whole) * 8, size=30):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        found = verification.load_newest(folder, named_leaves.flatten(state(0)))
        expected = named_leaves.flatten(state(found.step))
        jax.tree.map(np.testing.assert_array_equal, found.leaves, expected)
        fell_back += found.step == 1
    assert fell_back >= 28  # a few bytes of the file hold no data


def newest(folder):
    """Found by shapes and shardings alone, as a run asks for it."""
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state(0)
    )
    return verification.load_newest(folder, named_leaves.flatten(like))


@pytest.mark.parametrize("leaf", ["('params', 'backbone', 'w_DF')", "('step',)"])
def test_a_leaf_gone_from_the_list_of_leaves_is_damage(saved, tmp_path, leaf):
    folder = saved(tmp_path, 1, 2)
    path = folder / "2" / "state" / "_METADATA"
    listed = json.loads(path.read_text())
    del listed["tree_metadata"][leaf]
    path.write_text(json.dumps(listed))
    found = newest(folder)
    assert found.step == 1
    assert "_METADATA: " in found.refused[2]


def test_a_checkpoint_without_a_format_is_refused_and_stays(saved, tmp_path):
    folder = saved(tmp_path, 1, 2)
    path = folder / "2" / "record" / "metadata"
    record = {
        k: v for k, v in json.loads(path.read_text()).items() if k not in ("format", "digest")
    }
    path.write_text(json.dumps(verification.add_digest(record)))
    with pytest.raises(UserError, match=r"2 has format 1, .* train the run again"):
        restore(tmp_path)
    assert sorted(os.listdir(folder)) == ["1", "2"]


def test_a_changed_value_is_named_by_its_leaf(saved, tmp_path):
    folder = saved(tmp_path, 1, 2)
    shutil.rmtree(folder / "2" / "state")
    shutil.copytree(folder / "1" / "state", folder / "2" / "state")
    refused = verification.load_newest(folder, named_leaves.flatten(state(0))).refused
    names = "params/backbone/b_F, params/backbone/w_DF, step"
    assert refused == {2: f"not the values that were saved: {names}"}


def test_if_none_verifies_all_reasons_are_given(saved, tmp_path):
    folder = saved(tmp_path, 1, 2, 3)
    for step, damage in zip("123", (break_json, empty_folder, edit_json), strict=True):
        damage(folder / step)
    with pytest.raises(UserError) as refusal:
        restore(tmp_path)
    lines = str(refusal.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["step 3", "step 2", "step 1"]
    assert "is not JSON" in lines[3]
    assert sorted(os.listdir(folder)) == ["1", "2", "3"]
    assert not (tmp_path / "checkpoints-refused").exists()


def test_a_refused_number_can_be_saved_and_refused_again(tmp_path):
    for names in (["2"], ["2", "2-1"]):
        folder = save(tmp_path, 1, 2)
        break_json(folder / "2")
        assert_is(restore(tmp_path), 1)
        assert sorted(os.listdir(tmp_path / "checkpoints-refused")) == names
    save(tmp_path, 2)
    assert_is(restore(tmp_path), 2)


def test_the_same_object_saves_a_number_it_has_just_refused(saved, tmp_path):
    folder = saved(tmp_path, 1, 2)
    truncate(folder / "2")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.restore(state(0))[2] == 1
    checkpoints.save(2, state(2), {"at": 2})
    checkpoints.wait()
    assert_is(checkpoints.restore(state(0)), 2)
    checkpoints.close()


def test_a_workdir_reached_through_a_link_is_fine(saved, tmp_path):
    saved(tmp_path / "real", 1)
    os.symlink(tmp_path / "real", tmp_path / "link")
    assert_is(restore(tmp_path / "link"), 1)


def other(tree, **changes):
    """`tree` with entries of the backbone replaced, or left out where None."""
    backbone = {**tree["params"]["backbone"], **changes}
    return {**tree, "params": {"backbone": {k: v for k, v in backbone.items() if v is not None}}}


MISFITS = {
    "w_DF: checkpoint (64, 256) float32, this recipe (256, 64) float32": {
        "w_DF": np.ones((256, 64), "f")
    },
    "b_F: checkpoint (256,) bfloat16, this recipe (256,) float32": {"b_F": np.ones(256, "f")},
    "b_F: checkpoint (256,) bfloat16, this recipe (absent)": {"b_F": None},
    "new_D: checkpoint (absent), this recipe (3,) int32": {"new_D": np.ones(3, "i")},
}


@pytest.mark.parametrize(("message", "changes"), MISFITS.items())
def test_a_misfitting_leaf_is_named_and_nothing_is_moved(saved, tmp_path, message, changes):
    folder = saved(tmp_path, 1, 2)
    checkpoints = Checkpoints(tmp_path)
    like = jax.tree.map(jnp.asarray, other(state(0), **changes))
    with pytest.raises(UserError) as refusal:
        checkpoints.restore(like)
    checkpoints.close()
    assert f"{folder}/2 does not fit this recipe:\n  params/backbone/{message}" in str(
        refusal.value
    )
    assert sorted(os.listdir(folder)) == ["1", "2"]


def test_every_leaf_that_does_not_fit_is_named(saved, tmp_path):
    folder = saved(tmp_path, 1)
    like = other(state(0), w_DF=None, b_F=jnp.ones(2), x=jnp.ones(1))
    with pytest.raises(UserError) as refusal:
        verification.load_newest(folder, named_leaves.flatten(like))
    named = [line.split(":")[0].strip() for line in str(refusal.value).splitlines()[1:]]
    assert named == ["params/backbone/b_F", "params/backbone/w_DF", "params/backbone/x"]
