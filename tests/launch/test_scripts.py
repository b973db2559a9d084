"""What all launch scripts have in common: help, dry runs, quoting, and nothing secret."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support import fake_clouds
from tests.support.fake_clouds import ROOT

SCRIPTS = sorted(path.name for path in (ROOT / "launch").glob("*.sh"))
LAUNCHERS = {
    "tpu_vm.sh": ["--zone", "z", "--type", "v4-8", "--bucket", "b", "--setup", "true"],
    "slurm.sh": ["--commit", "HEAD"],
    "gke.sh": [
        "--image=i",
        "--build",
        "--accelerator=a",
        "--topology=2x2",
        "--bucket=b",
        "--delete",
    ],
    "sky.sh": ["--bucket", "gs://b"],
}
DOES = {  # a word of each command that a dry run is to show, in order
    "tpu_vm.sh": ["describe", "create", "describe", "scp", "install", "start", "follow", "delete"],
    "slurm.sh": ["archive", "sbatch"],
    "gke.sh": ["docker build", "docker push", "get jobset", "apply", "logs", "delete"],
    "sky.sh": ["archive", "jobs launch"],
}


def test_every_script_is_a_launcher_or_a_part_of_one():
    assert {*SCRIPTS} == {*LAUNCHERS, "common.sh", "worker.sh"}


def test_shellcheck_finds_nothing():
    beside = pathlib.Path(sys.executable).with_name("shellcheck")
    found = shutil.which("shellcheck") or (str(beside) if beside.exists() else "")
    if not found:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(
        [found, "--external-sources", *SCRIPTS], cwd=ROOT / "launch", capture_output=True, text=True
    )
    assert done.stdout == ""


@pytest.mark.parametrize("script", SCRIPTS)
def test_bash_is_told_to_be_strict(script):
    text = (ROOT / "launch" / script).read_text()
    assert "set -euo pipefail" in text or "/common.sh" in text
    if script != "common.sh":
        assert text.startswith("#!/usr/bin/env bash\n# ")
        assert os.access(ROOT / "launch" / script, os.X_OK)


@pytest.mark.parametrize("script", LAUNCHERS)
def test_help_names_every_option(script):
    done = subprocess.run([ROOT / "launch" / script, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "--workdir" in done.stdout
    assert "gs://" in done.stdout
    source = (ROOT / "launch" / script).read_text()
    assigned = re.findall(r"^([a-z_]+)=.*?# --", source, re.MULTILINE)
    listed = re.findall(r"^  --([a-z-]+)", done.stdout, re.MULTILINE)
    assert {*listed} == {*(name.replace("_", "-") for name in assigned), "dry-run"}
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


@pytest.mark.parametrize("script", LAUNCHERS)
def test_a_dry_run_shows_every_command_and_runs_none(script, tmp_path):
    fake_clouds.needs_git()
    played = fake_clouds.Played(tmp_path)
    for name in ("sbatch", "srun", "scontrol", "kubectl", "xpk", "docker", "sky", "ssh", "scp"):
        played.stub(name)
    done = played.run(script, *LAUNCHERS[script], "--dry-run", "--", "python", "-c", "print('a b')")
    assert done.returncode == 0, done.stderr
    assert not played.calls()
    shown = [line for line in done.stdout.splitlines() if line.startswith("+ ")]
    for word in DOES[script]:
        while word not in shown.pop(0):
            pass
    assert not list(played.repository.glob("runs"))


MISTAKES = {  # said by common.sh, whichever script reads it
    ("--no-such-option",): "there is no option --no-such-option",
    ("--name",): "--name wants a value",
    ("--dry-run=yes",): "--dry-run takes no value",
    ("stray",): "there is no option stray",
    ("--commit", "no-such-commit", "--", "x"): "there is no commit no-such-commit",
    ("--",): "name a program to run, after --",
}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        *(("tpu_vm.sh", words) for words in MISTAKES),
        *((script, ("--no-such-option",)) for script in LAUNCHERS if script != "tpu_vm.sh"),
    ],
)
def test_a_mistake_on_the_command_line_is_a_line(script, words):
    options = [] if "option" in MISTAKES[words] else LAUNCHERS[script]
    done = subprocess.run(
        [ROOT / "launch" / script, *options, *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert MISTAKES[words] in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("script", "option", "value"),
    [
        ("tpu_vm.sh", "--bucket", "b; touch x"),
        ("tpu_vm.sh", "--bucket", "$(touch x)"),
        ("tpu_vm.sh", "--zone", "-z"),
        ("gke.sh", "--bucket", "b\n  evil: yes"),
        ("gke.sh", "--bucket", "b:"),
        ("gke.sh", "--image", "i # x"),
        ("gke.sh", "--service-account", "a, b: c"),
        ("gke.sh", "--chips", "4, evil: 1"),
        ("sky.sh", "--bucket", "gs://b\nx: y"),
        ("slurm.sh", "--name", "a;b"),
        ("slurm.sh", "--name", "a\nb"),
        ("slurm.sh", "--gpus", "a[$(touch x)]"),
    ],
)
def test_values_that_a_shell_or_yaml_would_read_are_refused(script, option, value, tmp_path):
    command = [ROOT / "launch" / script, *LAUNCHERS[script], option, value, "--dry-run", "--", "x"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"[launch] error: {option} ")
    assert not done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("script", "option", "value"),
    [
        ("slurm.sh", "--name", "bert-mini-lr=0.0001-seed=0"),
        ("sky.sh", "--bucket", "gs://my_bucket.of/x/"),
        ("gke.sh", "--image", "europe-docker.pkg.dev:443/a-b/c_d/quartet"),
    ],
)
def test_names_and_addresses_as_they_are_pass(script, option, value):
    fake_clouds.needs_git()
    command = [ROOT / "launch" / script, *LAUNCHERS[script], option, value, "--dry-run", "--", "x"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert value in done.stdout


MAIN = ["python", "-m", "pretrain.main", "--config=bert:base"]
TPU, POD = ["--zone=z", "--type=v5litepod-8"], ["--zone=z", "--type=v5litepod-16"]
GKE = ["--image=i", "--accelerator=a", "--bucket=b", "--topology=4x4", "--hosts=4"]
XPK = ["--image=i", "--xpk=c", "--zone=z"]
NODES = ["--bucket=b", "--nodes=2"]


@pytest.mark.parametrize(
    ("script", "options", "words", "said"),
    [
        ("tpu_vm.sh", TPU, ["--workdir=gs://b/r"], "--workdir=gs://b/r is an address"),
        ("tpu_vm.sh", POD, ["--workdir", "s3://b/r"], "--workdir=s3://b/r is an address"),
        ("tpu_vm.sh", POD, [], "without a --workdir the run is on each worker's own disk"),
        ("tpu_vm.sh", POD, ["--workdir=runs/r"], "--workdir=runs/r is on each worker's own"),
        ("tpu_vm.sh", POD, ["--workdir=/mnt/bucket/r"], "nothing is mounted at /mnt/bucket"),
        ("tpu_vm.sh", [*POD, "--type=v5litepod-17"], [], "--type v5litepod-17: the sizes of"),
        ("tpu_vm.sh", [*POD, "--type=v5e-16"], [], "is called v5litepod-16"),
        ("tpu_vm.sh", [*POD, "--type=v4-12"], [], "--type v4-12: take a multiple of 8"),
        ("tpu_vm.sh", [*POD, "--bucket=gs://b/x"], [], "--bucket b/x: name a Google bucket"),
        ("slurm.sh", ["--nodes=2"], ["-workdir=gs://b"], "--workdir=gs://b is an address"),
        ("gke.sh", GKE, [], "without a --workdir the run is on each pod's own disk"),
        ("gke.sh", [*GKE, "--hosts=2"], [], "--topology 4x4 has 16 chips, and not --hosts 2"),
        ("gke.sh", [*GKE, "--bucket=s3://b"], [], "--bucket s3://b: name a Google bucket"),
        ("gke.sh", [*XPK, "--type=v6e-16"], ["--workdir=r"], "--workdir=r is on each pod's"),
        ("gke.sh", [*XPK, "--type=v6e-3"], [], "--type v6e-3: the sizes of v6e are 1, 4"),
        ("sky.sh", NODES, [], "without a --workdir the run is on each node's own disk"),
        ("sky.sh", [*NODES, "--gpus=tpu-v6e-9"], [], "--gpus v6e-9: the sizes of v6e are"),
    ],
)
@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_what_cannot_work_is_refused_before_anything_is_rented(
    script, options, words, said, dry, tmp_path
):
    fake_clouds.needs_git()
    played = fake_clouds.Played(tmp_path)
    for name in ("sbatch", "kubectl", "xpk", "sky"):
        played.stub(name)
    done = played.run(script, *options, *dry, "--", *MAIN, *words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("[launch] error: ")
    assert said in line
    assert not played.calls()


@pytest.mark.parametrize(
    ("script", "options", "words"),
    [
        ("tpu_vm.sh", [*TPU, "--delete=never"], []),
        ("tpu_vm.sh", [*POD, "--setup=mount x ~/runs"], ["--workdir=runs/r"]),
        ("tpu_vm.sh", [*POD, "--type=v9x-17", "--bucket=b"], ["--workdir=/mnt/bucket/r"]),
        ("slurm.sh", ["--nodes=2"], []),  # in the repository, which all nodes see
        ("gke.sh", [*GKE, "--hosts=1", "--topology=2x2"], []),
        ("sky.sh", NODES, ["--workdir=gs://b/old", "--workdir=/mnt/bucket/r"]),
    ],
)
def test_a_workdir_that_all_machines_see_passes(script, options, words):
    fake_clouds.needs_git()
    command = [ROOT / "launch" / script, *options, "--dry-run", "--", *MAIN, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_run_that_goes_with_its_machine_is_told_of():
    fake_clouds.needs_git()
    words = [ROOT / "launch" / "tpu_vm.sh", *TPU, "--dry-run"]
    for options, is_told in ([], True), (["--delete=always"], True), (["--delete=never"], False):
        done = subprocess.run([*words, *options, "--", *MAIN], capture_output=True, text=True)
        assert done.returncode == 0
        assert ("on the machine's own disk, and goes with it" in done.stderr) == is_told


@pytest.mark.parametrize("bucket", ["my_b", "gs://my_b", "gs://my_b/"])
@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("tpu_vm.sh", "worker.sh mount my_b /mnt/bucket"),
        ("gke.sh", "bucketName: my_b\n"),
        ("sky.sh", "--env=BUCKET=gs://my_b"),
    ],
)
def test_a_bucket_is_named_with_its_scheme_or_without(script, shown, bucket):
    fake_clouds.needs_git()
    options = [*LAUNCHERS[script], "--bucket", bucket, "--dry-run"]
    done = subprocess.run([ROOT / "launch" / script, *options, "--", "x"], capture_output=True)
    assert shown in done.stdout.decode()


def test_names_that_a_cloud_refuses_are_refused_here():
    for name in ("Bert", "a_b", "x" * 41, "-a", "a.b"):
        command = [ROOT / "launch" / "sky.sh", "--bucket", "gs://b", "--name", name, "--", "x"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2, name
        assert "--name" in done.stderr


@settings(max_examples=8, deadline=None)
@example(words=["~", "~/x", "a=~", "", "it's", "$HOME", "*", "{a,b}", "\n"])
@given(words=st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8)))
def test_a_quoted_command_is_read_as_it_was(words):
    source = f'source {ROOT}/launch/common.sh; quoted "$@"'
    line = subprocess.run(["bash", "-c", source, "x", *words], capture_output=True).stdout
    again = subprocess.run(["sh", "-c", b"printf '%s\\0' x " + line], capture_output=True).stdout
    assert again.decode().split("\0")[1:-1] == words


def test_no_file_holds_a_secret_or_names_a_host():
    for path in sorted((ROOT / "launch").iterdir()):
        if path.is_file():
            text = path.read_text()
            assert not re.search(r"(?i)password|secret|token|api.?key|BEGIN .*KEY", text), path
            assert not re.search(r"https?://|\b\d+\.\d+\.\d+\.\d+\b|@[\w-]+\.", text), path


@pytest.mark.slow
def test_gcloud_knows_every_flag_that_it_is_given(tmp_path):
    if not shutil.which("gcloud"):
        pytest.skip("gcloud is not installed")
    options = ["--spot", "--reserved", "--project=p", "--dry-run", "--"]
    script = [ROOT / "launch" / "tpu_vm.sh", *LAUNCHERS["tpu_vm.sh"]]
    plain = subprocess.run([*script, *options, "x"], capture_output=True, text=True)
    alpha = subprocess.run(
        [*script, "--autocheckpoint", "--iap", *options, "x"], capture_output=True, text=True
    )
    lines = plain.stdout.splitlines() + [x for x in alpha.stdout.splitlines() if " alpha " in x]
    verbs = {}
    for line in lines:
        if line.startswith("+ gcloud"):
            words = line[2:].split("'--command")[0].split()
            cut = 6 if "alpha" in words else 5
            verbs.setdefault(tuple(words[:cut]), set()).update(
                re.findall(r"--[a-z-]+", " ".join(words[cut:]))
            )
    assert len(verbs) == 9
    for verb, flags in verbs.items():
        told = subprocess.run(
            [*verb, "--help"],
            capture_output=True,
            text=True,
            env=os.environ | {"CLOUDSDK_CONFIG": str(tmp_path), "PAGER": "cat"},
        ).stdout
        known = {*re.findall(r"--[a-z-]+", re.sub(r"\x1b\[\d*m", "", told))}
        assert flags <= known | {"--quiet", "--format"}, verb
