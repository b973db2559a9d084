"""launch/tpu_vm.sh against a cloud played on this machine: pre-empted, refused, silent."""

import signal
from typing import NamedTuple

import pytest

from tests.support import fake_clouds

WHERE = ("--zone", "z", "--poll", "0.02")
HERE = (*WHERE, "--type", "v5litepod-16")
slow = pytest.mark.slow


@pytest.fixture
def tpu(tmp_path):
    fake_clouds.needs_git()
    played = fake_clouds.Played(tmp_path, workers=2)
    yield played
    played.run("tpu_vm.sh", *WHERE, "--stop", "--delete", "always")


def train(tpu, *options, steps=5, code=0, words=(), start=False):
    """The launcher with a program of so many steps, which ends with this code."""
    program = ("python", "program.py", str(tpu.bucket / "progress"), str(steps), str(code), *words)
    return (tpu.start if start else tpu.run)("tpu_vm.sh", *HERE, *options, "--", *program)


class Case(NamedTuple):
    """What the cloud plays, what the launcher is asked for, and what comes of it."""

    plays: dict[str, str] = {}
    options: tuple[str, ...] = ()
    steps: int = 5
    program_code: int = 0
    code: int = 0
    created: int = 1
    deleted: int = 1
    starts: int = 1
    said: str = ""


CASES = {
    "preempted": Case({"at-follow": "preempt 3"}, steps=10, created=2, deleted=2, starts=2),
    "under maintenance": Case(
        {"at-follow": "maintain 3"}, ("--autocheckpoint",), 40, starts=2, said="Stopped at step"
    ),
    "restarted": Case({"at-follow": "reboot 3"}, steps=10, starts=2),
    "cut off once": Case({"at-follow": "drop 3"}, steps=40),
    "cut off for good": Case({"at-follow": "deafen 3"}, steps=10, created=2, deleted=2, starts=2),
    "failing": Case(steps=3, program_code=9, code=9, deleted=0, said="still there, and costs"),
    "failing, not kept": Case({}, ("--delete", "always"), 2, program_code=9, code=9),
    "kept": Case({}, ("--delete", "never"), 2, deleted=0),
    "there already": Case({"states": "ACTIVE"}, created=0),
    "suspended": Case({"states": "SUSPENDED"}, deleted=2),
    "refused": Case(
        {"refuse-create": "ERROR: RESOURCE_EXHAUSTED: Quota limit exceeded"},
        code=1, deleted=0, starts=0, said="RESOURCE_EXHAUSTED",
    ),
    "without quota": Case(
        {"next-states": "PROVISIONING FAILED", "why": "Quota limit 'PerProject' is exceeded."},
        code=2, starts=0, said="PerProject",
    ),
    "without machines": Case(
        {"next-states": "PROVISIONING FAILED", "why": "There is no more capacity in the zone"},
        created=2, deleted=2,
    ),
    "unknown to the cloud": Case(
        {"hiccup": "ERROR: you are not signed in"},
        code=2, created=0, deleted=0, starts=0, said="not signed in",
    ),
    "never answering": Case(
        {"states": "ACTIVE", "deaf": "yes"},
        code=255, created=0, deleted=0, starts=0, said="is ssh allowed",
    ),
    "without packages": Case({"refuse-install": "yes"}, code=1, deleted=0, starts=0),
}  # fmt: skip
QUICK = {"preempted", "failing", "refused", "without quota", "never answering"}


@pytest.mark.parametrize(
    "case", [pytest.param(x, id=i, marks=() if i in QUICK else slow) for i, x in CASES.items()]
)
def test_whatever_befalls_a_machine_the_run_ends_as_it_should(tpu, case):
    for event, text in case.plays.items():
        tpu.play(event, text)
    done = train(tpu, *case.options, steps=case.steps, code=case.program_code)
    assert done.returncode == case.code, done.stderr
    assert case.said in done.stdout + done.stderr
    verbs = "queued-resources create", "queued-resources delete", "worker.sh start"
    counts = tuple(len(tpu.calls(verb)) for verb in verbs)
    assert counts == (case.created, case.deleted, case.starts)
    if not case.code:
        assert f"[0] Finished at step {case.steps} of {case.steps}." in done.stdout
        assert [*dict.fromkeys(tpu.steps())] == [*range(1, case.steps + 1)]
        # Where nobody answers any more, the program may still be at work.
        assert "deafen" in str(case.plays) or len(tpu.steps()) == case.steps


def test_a_run_is_created_installed_followed_and_deleted(tpu):
    words = ["a b", "it's", '"$HOME" `x` \\ *', "--config.corpus.source=text:/x/**/*.txt;"]
    done = train(tpu, "--spot", words=words)
    assert done.returncode == 0, done.stderr
    assert f"[0] continuing from step 0 {words}" in done.stdout
    assert "[0] Finished at step 5 of 5." in done.stdout
    (create,) = tpu.calls("queued-resources create")
    assert {"--spot", "--accelerator-type=v5litepod-16", "--node-id=quartet"} <= {*create["words"]}
    assert "--runtime-version=v2-alpha-tpuv5-lite" in create["words"]
    assert len(tpu.calls("queued-resources delete")) == 1
    assert all("--zone=z" in call["words"] for call in tpu.calls("gcloud"))


@slow
def test_the_code_is_that_of_the_commit(tpu):
    (tpu.repository / "program.py").write_text("print('changed'); raise SystemExit(3)")
    done = train(tpu, "--autocheckpoint")
    assert done.returncode == 0
    assert "not committed stays behind" in done.stderr
    (create,) = tpu.calls("queued-resources create")
    assert create["words"][1] == "alpha"
    assert "--autocheckpoint-enabled" in create["words"]
    tpu.git("commit", "--quiet", "--all", "--message=changed")
    assert train(tpu).returncode == 3
    assert train(tpu, "--commit", "HEAD~1").returncode == 0


@slow
def test_a_failed_look_at_the_cloud_is_repeated(tpu):
    process = train(tpu, start=True)
    fake_clouds.wait_for(lambda: tpu.calls("queued-resources create"), process)
    tpu.play("hiccup", "ERROR: UNAVAILABLE")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Finished" in out


@slow
def test_a_run_survives_its_launcher_and_is_followed_again(tpu):
    hold = tpu.bucket / "progress-hold"
    hold.touch()
    process = train(tpu, start=True)
    fake_clouds.wait_for(lambda: tpu.calls("worker.sh follow"), process)
    process.kill()
    process.wait()
    again = train(tpu, start=True)
    fake_clouds.wait_for(lambda: len(tpu.calls("worker.sh follow")) == 2, again)
    hold.unlink()
    out, err = again.communicate()
    assert again.returncode == 0, err
    assert "[0] Finished at step 5 of 5." in out
    assert tpu.steps() == [1, 2, 3, 4, 5]
    assert len(tpu.calls("worker.sh start")) == 1


@slow
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_stop_saves_and_an_interrupt_ends_the_launcher_alone(tpu, is_interrupted):
    process = train(tpu, steps=1000, start=True)
    (tpu.bucket / "progress-hold").touch()
    fake_clouds.wait_for(lambda: tpu.calls("worker.sh follow") and tpu.steps(), process)
    if is_interrupted:  # a terminal would interrupt gcloud, too
        process.send_signal(signal.SIGINT)
    assert tpu.run("tpu_vm.sh", *WHERE, "--stop").returncode == 0
    out, err = process.communicate()
    assert process.returncode == (130 if is_interrupted else 143), err
    assert ("the program goes on" in err) == is_interrupted
    assert is_interrupted or "[0] Stopped at step" in out
