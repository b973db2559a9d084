"""launch/sky.sh against a stub of sky, and its YAML as SkyPilot reads it."""

import subprocess

import pytest
import yaml

from launch.attempt import AGAIN
from tests.support import fake_clouds
from tests.support.fake_clouds import HARD_TO_QUOTE

TASK = yaml.safe_load((fake_clouds.ROOT / "launch" / "sky.yaml").read_text())


@pytest.fixture
def cluster(tmp_path):
    fake_clouds.needs_git()
    played = fake_clouds.Played(tmp_path)
    played.stub("sky")
    return played


def sky(cluster, *options):
    options = ("--name", "bert", "--bucket", "gs://b", *options)
    return cluster.run("sky.sh", *options, "--", *HARD_TO_QUOTE)


def test_a_managed_job_gets_the_code_of_the_commit(cluster):
    cluster.stub("sky", 'import shutil; shutil.copytree(words[-2][10:], f"{folder}/sent")')
    (cluster.repository / "program.py").write_text("changed")
    assert sky(cluster, "--gpus", "H100:8", "--nodes", "2", "--spot").returncode == 0
    (call,) = cluster.calls("sky jobs launch")
    assert {"--name=bert", "--gpus=H100:8", "--num-nodes=2", "--use-spot"} <= {*call["words"]}
    assert "--env=BUCKET=gs://b" in call["words"]
    assert (cluster.folder / "sent" / "program.py").read_text() == fake_clouds.PROGRAM


def test_a_stopped_task_is_recovered():
    assert TASK["resources"]["job_recovery"] == {"recover_on_exit_codes": [AGAIN]}
    assert TASK["file_mounts"] == {"/mnt/bucket": {"source": "${BUCKET}", "mode": "MOUNT"}}
    assert subprocess.run(["bash", "-n"], input=TASK["setup"], text=True).returncode == 0


@pytest.mark.parametrize("tpu", [False, True])
def test_each_node_but_a_tpus_gets_its_process_id(cluster, tpu):
    assert sky(cluster, *["--tpu"] * tpu).returncode == 0
    (call,) = cluster.calls("sky jobs launch")
    sent = dict(word[6:].split("=", 1) for word in call["words"] if word.startswith("--env="))
    cluster.stub("python")
    nodes = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2"}
    environment = cluster.environment(HOME="/none", SKYPILOT_NODE_RANK="1", **nodes)
    subprocess.run(["bash", "-c", TASK["run"]], env=environment | TASK["envs"] | sent, check=True)
    (started,) = cluster.calls("launch.attempt")
    assert started["words"][4:] == HARD_TO_QUOTE
    given = {
        k: v for k, v in started["env"].items() if k in ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    }
    given |= {"at": started["env"].get("JAX_COORDINATOR_ADDRESS", "")}
    expected = {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1", "at": "10.0.0.1:8476"}
    assert given == ({"at": ""} if tpu else expected)
