"""launch/gke.sh and launch/sky.sh against stubs, and their YAML as those who read it would."""

import subprocess
import tarfile

import pytest
import yaml

from launch.attempt import AGAIN
from tests.support import fake_clouds

PROGRAM = [
    "python",
    "-m",
    "pretrain.main",
    "a b",
    "it's",
    '"x" \\ ${HOME}',
    "--workdir=/mnt/bucket/r",
]
SLICE = ("--accelerator", "tpu-v5-lite-podslice", "--topology", "4x4", "--hosts", "4")
GKE = ("--name", "bert", "--image", "here/quartet", *SLICE, "--bucket", "b", "--poll", "0.01")


@pytest.fixture
def cluster(tmp_path):
    fake_clouds.needs_git()
    played = fake_clouds.Played(tmp_path)
    for name in ("kubectl", "xpk", "docker", "sky"):
        played.stub(name)
    return played


def gke(cluster, *options, program=PROGRAM):
    return cluster.run("gke.sh", *GKE, *options, "--", *program, PIPED="kubectl docker")


def becomes(cluster, *states):
    """What the JobSet's conditions are, look after look."""
    for state in states[:-1]:
        cluster.answer("kubectl", "get", out=state)
    cluster.answer("kubectl", "get", out=states[-1], once=False)


def applied(cluster) -> dict:
    (call,) = cluster.calls("kubectl", "apply")
    return yaml.safe_load(call["stdin"])


def job(jobset: dict) -> dict:
    return jobset["spec"]["replicatedJobs"][0]["template"]["spec"]


def test_a_jobset_is_made_followed_and_its_success_is_ours(cluster):
    becomes(cluster, "", "bert", "bert Completed")
    cluster.answer("kubectl", "logs", out="[pod/bert-slice-0-0-x] Finished at step 6 of 6.\n")
    done = gke(cluster)
    assert done.returncode == 0, done.stderr
    assert "Finished at step 6" in done.stdout
    assert len(cluster.calls("kubectl", "logs", "--follow")) == 2
    assert not cluster.calls("kubectl", "delete")


def test_every_host_gets_a_pod_its_chips_the_bucket_and_the_program_word_by_word(cluster):
    becomes(cluster, "", "bert Completed")
    gke(cluster, "--chips", "8")
    jobset = applied(cluster)
    assert jobset["metadata"]["name"] == "bert"
    assert (job(jobset)["completions"], job(jobset)["parallelism"]) == (4, 4)
    assert job(jobset)["completionMode"] == "Indexed"
    pod = job(jobset)["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["python", "-m", "launch.attempt", "--"]
    assert container["args"] == PROGRAM
    assert container["resources"]["limits"] == {"google.com/tpu": 8}
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    (volume,) = pod["volumes"]
    assert volume["csi"]["volumeAttributes"]["bucketName"] == "b"
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/mnt/bucket"}]


@pytest.mark.parametrize(("options", "user"), [((), 1000), (("--as-root",), 0)])
def test_a_pod_runs_as_the_user_who_may_write_to_the_bucket(cluster, options, user):
    becomes(cluster, "", "bert Completed")
    gke(cluster, *options)
    pod = job(applied(cluster))["template"]["spec"]
    assert pod["containers"][0]["securityContext"] == {
        "runAsNonRoot": user != 0,
        "runAsUser": user,
        "allowPrivilegeEscalation": False,
    }
    mounted = pod["volumes"][0]["csi"]["volumeAttributes"]["mountOptions"].split(",")
    assert f"uid={user}" in mounted


def test_the_image_has_a_user_who_can_write_data_and_runs_alone():
    lines = (fake_clouds.ROOT / "launch" / "Dockerfile").read_text().splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert steps[-1] == ["USER", "1000"]
    assert steps[-2][0] == "RUN"
    assert "useradd --uid 1000" in steps[-2][1]
    assert "install --directory --owner=1000 data runs" in steps[-2][1]
    assert ["WORKDIR", "/quartet"] in steps


def test_what_is_nobodys_fault_restarts_all_and_is_not_counted(cluster):
    becomes(cluster, "", "bert Completed")
    gke(cluster, "--spot", "--restarts", "5")
    jobset = applied(cluster)
    policy = jobset["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 5
    (rule,) = policy["rules"]
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert job(jobset)["backoffLimit"] == 0
    taken, stopped = job(jobset)["podFailurePolicy"]["rules"]
    assert taken["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    pod = job(jobset)["template"]["spec"]
    assert stopped["onExitCodes"]["values"] == [AGAIN]
    assert stopped["onExitCodes"]["containerName"] == pod["containers"][0]["name"]
    assert pod["restartPolicy"] == "Never"  # or there may be no podFailurePolicy
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"


def test_a_jobset_that_is_there_already_is_followed(cluster):
    becomes(cluster, "bert", "bert Completed")
    assert gke(cluster).returncode == 0
    assert not cluster.calls("kubectl", "apply")


@pytest.mark.parametrize(
    ("states", "said"),
    [(("", "bert Failed"), "has failed"), (("", "bert", ""), "is gone")],
)
def test_a_jobset_that_fails_or_is_deleted_is_our_failure(cluster, states, said):
    becomes(cluster, *states)
    done = gke(cluster)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_cluster_that_does_not_answer_for_a_moment_is_asked_again(cluster):
    cluster.answer("kubectl", "get", out="")
    cluster.answer("kubectl", "get", err="timed out", code=1)
    becomes(cluster, "bert Completed")
    assert gke(cluster).returncode == 0
    assert len(cluster.calls("kubectl", "get")) == 3


def test_the_image_is_built_of_the_commit_and_named_after_it(cluster, tmp_path):
    becomes(cluster, "", "bert Completed")
    (cluster.repository / "program.py").write_text("changed")
    head = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=cluster.repository,
        capture_output=True,
        text=True,
    ).stdout.strip()
    keep = 'import shutil; shutil.copyfileobj(sys.stdin.buffer, open(f"{folder}/context", "wb"))'
    cluster.stub("docker", f'if "build" in words: {keep}')
    assert cluster.run("gke.sh", *GKE, "--build", "--", "x", PIPED="kubectl").returncode == 0
    with tarfile.open(cluster.folder / "context") as context:
        assert context.extractfile("program.py").read().decode() == fake_clouds.PROGRAM
    build, push = cluster.calls("docker")
    assert f"here/quartet:{head}" in build["words"]
    assert push["words"] == ["docker", "push", f"here/quartet:{head}"]
    assert (
        job(applied(cluster))["template"]["spec"]["containers"][0]["image"]
        == f"here/quartet:{head}"
    )


def test_xpk_is_given_the_same_program(cluster):
    options = ("--xpk", "c", "--zone", "z", "--type", "v5litepod-16")
    assert gke(cluster, *options).returncode == 0
    (call,) = cluster.calls("xpk workload create")
    assert {"--cluster=c", "--zone=z", "--workload=bert", "--num-slices=1"} <= {*call["words"]}
    assert f"--restart-on-exit-codes={AGAIN}" in call["words"]
    command = next(word[10:] for word in call["words"] if word.startswith("--command="))
    words = command.replace("python -m launch.attempt -- ", "")
    echoed = subprocess.run(["sh", "-c", f"printf '%s\\n' {words}"], capture_output=True, text=True)
    assert echoed.stdout.splitlines() == PROGRAM
    assert not cluster.calls("kubectl")


def test_stop_deletes_the_jobset(cluster):
    assert cluster.run("gke.sh", "--name", "bert", "--stop").returncode == 0
    (call,) = cluster.calls("kubectl")
    assert call["words"][:4] == ["kubectl", "delete", "jobset", "bert"]


# --- SkyPilot --------------------------------------------------------------------------------


def sky(cluster, *options):
    options = ("--name", "bert", "--bucket", "gs://b", *options)
    return cluster.run("sky.sh", *options, "--", *PROGRAM)


def test_a_managed_job_is_submitted_with_the_code_of_the_commit(cluster):
    cluster.stub("sky", 'import shutil; shutil.copytree(words[-2][10:], f"{folder}/sent")')
    (cluster.repository / "program.py").write_text("changed")
    assert sky(cluster, "--gpus", "H100:8", "--nodes", "2", "--spot").returncode == 0
    (call,) = cluster.calls("sky jobs launch")
    assert {"--name=bert", "--gpus=H100:8", "--num-nodes=2", "--use-spot"} <= {*call["words"]}
    assert "--env=BUCKET=gs://b" in call["words"]
    assert (cluster.folder / "sent" / "program.py").read_text() == fake_clouds.PROGRAM


def test_what_sky_submits_is_recovered_when_it_was_stopped(cluster):
    task = yaml.safe_load((fake_clouds.ROOT / "launch" / "sky.yaml").read_text())
    assert task["resources"]["job_recovery"] == {"recover_on_exit_codes": [AGAIN]}
    assert task["file_mounts"] == {"/mnt/bucket": {"source": "${BUCKET}", "mode": "MOUNT"}}
    assert subprocess.run(["bash", "-n"], input=task["setup"], text=True).returncode == 0


@pytest.mark.parametrize("tpu", [False, True])
def test_each_node_is_told_who_it_is_unless_it_is_a_tpus(cluster, tpu):
    assert sky(cluster, *["--tpu"] * tpu).returncode == 0
    (call,) = cluster.calls("sky jobs launch")
    task = yaml.safe_load((fake_clouds.ROOT / "launch" / "sky.yaml").read_text())
    sent = dict(word[6:].split("=", 1) for word in call["words"] if word.startswith("--env="))
    cluster.stub("python")
    nodes = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2"}
    own = cluster.environment(HOME="/none", SKYPILOT_NODE_RANK="1", **nodes)
    subprocess.run(["bash", "-c", task["run"]], env=own | task["envs"] | sent, check=True)
    (started,) = cluster.calls("launch.attempt")
    assert started["words"][4:] == PROGRAM
    told = {k: v for k, v in started["env"].items() if k in ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID")}
    told |= {"at": started["env"].get("JAX_COORDINATOR_ADDRESS", "")}
    expected = {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1", "at": "10.0.0.1:8476"}
    assert told == ({"at": ""} if tpu else expected)
