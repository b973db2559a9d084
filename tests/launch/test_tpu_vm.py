"""launch/tpu_vm.sh against a cloud played on this machine: pre-empted, refused, silent."""

import re
import shlex
import shutil
import signal

import pytest

from tests.support import fake_clouds
from tests.support import tiny_runs as toys

WHERE = ("--zone", "z", "--poll", "0.02")
HERE = (*WHERE, "--type", "v5litepod-16")


@pytest.fixture
def tpu(tmp_path):
    fake_clouds.needs_git()
    played = fake_clouds.Played(tmp_path, workers=2)
    yield played
    played.run("tpu_vm.sh", *WHERE, "--stop", "--delete", "always")


def program(tpu, steps=5, code=0, *words):
    return (
        "--",
        "python",
        "program.py",
        str(tpu.bucket / "progress"),
        str(steps),
        str(code),
        *words,
    )


def train(tpu, *options, steps=5, code=0):
    return tpu.run("tpu_vm.sh", *HERE, *options, *program(tpu, steps, code))


def created(tpu) -> int:
    return len(tpu.calls("queued-resources create"))


def deleted(tpu) -> int:
    return len(tpu.calls("queued-resources delete"))


def test_a_run_is_created_installed_followed_and_deleted(tpu):
    words = ["a b", "it's", '"$HOME" `x` \\ *', "--config.corpus.source=text:/x/**/*.txt;"]
    done = tpu.run("tpu_vm.sh", *HERE, "--spot", *program(tpu, 5, 0, *words))
    assert done.returncode == 0, done.stderr
    assert f"[0] continuing from step 0 {words}" in done.stdout
    assert tpu.steps() == [1, 2, 3, 4, 5]
    assert "[0] Finished at step 5 of 5." in done.stdout
    (create,) = tpu.calls("queued-resources create")
    assert {"--spot", "--accelerator-type=v5litepod-16", "--node-id=quartet"} <= {*create["words"]}
    assert "--runtime-version=v2-alpha-tpuv5-lite" in create["words"]
    assert deleted(tpu) == 1
    assert all("--zone=z" in call["words"] for call in tpu.calls("gcloud"))


def test_a_preempted_machine_is_replaced_and_the_run_goes_on(tpu):
    tpu.play("at-follow", "preempt 3")
    done = train(tpu, steps=10)
    assert done.returncode == 0, done.stderr
    assert tpu.steps() == list(range(1, 11))
    assert (created(tpu), deleted(tpu)) == (2, 2)
    assert re.search(r"continuing from step [3-9]", done.stdout)
    assert "[0] Finished at step 10 of 10." in done.stdout


@pytest.mark.slow
def test_a_program_stopped_by_maintenance_goes_on(tpu):
    tpu.play("at-follow", "maintain 3")
    done = train(tpu, "--autocheckpoint", steps=40)
    assert done.returncode == 0, done.stderr
    assert tpu.steps() == list(range(1, 41))
    assert "Stopped at step" in done.stdout
    assert "Finished at step 40 of 40." in done.stdout
    assert created(tpu) == 1
    (create,) = tpu.calls("queued-resources create")
    assert create["words"][1] == "alpha"
    assert "--autocheckpoint-enabled" in create["words"]


@pytest.mark.slow
def test_a_restarted_worker_is_no_failure_of_the_program(tpu):
    tpu.play("at-follow", "reboot 3")
    done = train(tpu, steps=10)
    assert done.returncode == 0, done.stderr
    assert tpu.steps() == list(range(1, 11))
    assert created(tpu) == 1
    assert len(tpu.calls("worker.sh start")) == 2


@pytest.mark.slow
def test_a_dropped_connection_neither_ends_nor_doubles_the_program(tpu):
    tpu.play("at-follow", "drop 3")
    done = train(tpu, steps=40)
    assert done.returncode == 0, done.stderr
    assert tpu.steps() == list(range(1, 41))
    assert len(tpu.calls("worker.sh start")) == 1
    assert len(tpu.calls("worker.sh follow")) == 2


def test_a_failed_program_ends_it_and_leaves_the_machine(tpu):
    done = train(tpu, steps=3, code=9)
    assert done.returncode == 9
    assert len(tpu.calls("worker.sh start")) == 1
    assert deleted(tpu) == 0
    assert "still there, and costs" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("when", "code", "gone"), [("always", 9, 1), ("never", 0, 0)])
def test_the_machine_is_deleted_when_it_was_said_to_be(tpu, when, code, gone):
    assert train(tpu, "--delete", when, steps=2, code=code).returncode == code
    assert deleted(tpu) == gone


@pytest.mark.slow
def test_an_existing_resource_is_used(tpu):
    tpu.play("states", "ACTIVE")
    assert train(tpu).returncode == 0
    assert created(tpu) == 0


@pytest.mark.slow
def test_a_suspended_resource_is_replaced(tpu):
    tpu.play("states", "SUSPENDED")
    assert train(tpu).returncode == 0
    assert (created(tpu), deleted(tpu)) == (1, 2)


@pytest.mark.slow
def test_the_code_is_that_of_the_commit(tpu):
    (tpu.repository / "program.py").write_text("print('changed'); raise SystemExit(3)")
    done = train(tpu)
    assert done.returncode == 0
    assert "not committed stays behind" in done.stderr
    tpu.git("commit", "--quiet", "--all", "--message=changed")
    assert train(tpu).returncode == 3
    assert train(tpu, "--commit", "HEAD~1").returncode == 0


def test_a_refused_request_ends_it_at_once(tpu):
    tpu.play("refuse-create", "ERROR: RESOURCE_EXHAUSTED: Quota limit exceeded")
    done = train(tpu)
    assert done.returncode == 1
    assert "RESOURCE_EXHAUSTED" in done.stderr
    assert created(tpu) == 1


def test_a_request_without_quota_is_not_repeated(tpu):
    tpu.play("next-states", "PROVISIONING FAILED")
    tpu.play("why", "Quota limit 'TPUV5sLitepodPerProject' has been exceeded.")
    done = train(tpu)
    assert done.returncode == 2
    assert "TPUV5sLitepodPerProject" in done.stderr
    assert (created(tpu), deleted(tpu)) == (1, 1)


@pytest.mark.slow
def test_a_request_without_machines_is_repeated(tpu):
    tpu.play("next-states", "PROVISIONING FAILED")
    tpu.play("why", "There is no more capacity in the zone")
    assert train(tpu).returncode == 0
    assert created(tpu) == 2


@pytest.mark.slow
def test_a_failed_look_at_the_cloud_is_repeated(tpu):
    process = tpu.start("tpu_vm.sh", *HERE, *program(tpu, 5))
    fake_clouds.wait_for(lambda: tpu.calls("queued-resources create"), process)
    tpu.play("hiccup", "ERROR: UNAVAILABLE")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Finished" in out


def test_a_first_look_that_fails_ends_it(tpu):
    tpu.play("hiccup", "ERROR: you are not signed in")
    done = train(tpu)
    assert done.returncode == 2
    assert "not signed in" in done.stderr


def test_workers_that_never_answer_end_it(tpu):
    tpu.play("states", "ACTIVE")
    tpu.play("deaf", "yes")
    done = train(tpu)
    assert done.returncode == 255
    assert "is ssh allowed" in done.stderr
    assert deleted(tpu) == 0


@pytest.mark.slow
def test_workers_that_answer_no_more_are_replaced(tpu):
    tpu.play("at-follow", "deafen 3")
    done = train(tpu, steps=10)
    assert done.returncode == 0, done.stderr
    assert (created(tpu), deleted(tpu)) == (2, 2)
    assert tpu.steps()[-1] == 10


@pytest.mark.slow
def test_packages_that_cannot_be_installed_end_it(tpu):
    tpu.play("refuse-install", "yes")
    assert train(tpu).returncode == 1
    assert len(tpu.calls("worker.sh install")) == 1


@pytest.mark.slow
def test_a_run_survives_its_launcher_and_is_followed_again(tpu):
    hold = tpu.bucket / "progress-hold"
    hold.touch()
    process = tpu.start("tpu_vm.sh", *HERE, *program(tpu, 5))
    fake_clouds.wait_for(lambda: tpu.calls("worker.sh follow"), process)
    process.kill()
    process.wait()
    again = tpu.start("tpu_vm.sh", *HERE, *program(tpu, 5))
    fake_clouds.wait_for(lambda: len(tpu.calls("worker.sh follow")) == 2, again)
    hold.unlink()
    out, err = again.communicate()
    assert again.returncode == 0, err
    assert "[0] Finished at step 5 of 5." in out
    assert tpu.steps() == [1, 2, 3, 4, 5]
    assert len(tpu.calls("worker.sh start")) == 1


def begun(tpu):
    """The launcher of a program that would take for ever."""
    process = tpu.start("tpu_vm.sh", *HERE, *program(tpu, 1000))
    (tpu.bucket / "progress-hold").touch()
    fake_clouds.wait_for(lambda: tpu.calls("worker.sh follow") and tpu.steps(), process)
    return process


@pytest.mark.slow
def test_stop_lets_the_program_save_and_ends_the_launcher(tpu):
    process = begun(tpu)
    assert tpu.run("tpu_vm.sh", *WHERE, "--stop").returncode == 0
    out, err = process.communicate()
    assert process.returncode == 143, err
    assert "[0] Stopped at step" in out


@pytest.mark.slow
def test_an_interrupt_ends_the_launcher_and_not_the_program(tpu):
    process = begun(tpu)
    process.send_signal(signal.SIGINT)
    tpu.run("tpu_vm.sh", *WHERE, "--stop")  # a terminal would interrupt gcloud, too
    _, err = process.communicate()
    assert process.returncode == 130
    assert "the program goes on" in err


@pytest.mark.slow
@pytest.mark.parametrize("event", ["preempt", "maintain"])
def test_a_real_run_ends_with_the_same_bits(tpu, toy, tmp_path, event):
    shutil.rmtree(tmp_path / "worker-1")
    workdir = tpu.bucket / "run"
    changes = {"optim.steps": 300, "train.save_every": 5}
    words = ["python", *toy.command("bilm", workdir, changes)[1:]]
    inside = f"cd {fake_clouds.ROOT}; exec {shlex.join(words)}"
    tpu.play("at-follow", f"{event} 40")
    own = {k: v for k, v in toy.environment().items() if k.startswith(("JAX_", "XLA_"))}
    own["PROGRESS"] = str(workdir / "metrics.jsonl")
    process = tpu.start("tpu_vm.sh", *HERE, "--", "sh", "-c", inside, **own)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert len(tpu.calls("worker.sh start")) == 2
    assert "[0] Finished at step 300 of 300." in out
    straight = toy.run("bilm", tmp_path / "straight", changes)
    assert straight.returncode == 0
    assert toys.sums(workdir, 300) == toys.sums(tmp_path / "straight", 300)
