"""launch/gke.sh against stubs, and its JobSet as Kubernetes reads it."""

import subprocess
import tarfile

import pytest
import yaml

from launch.attempt import AGAIN
from tests.support import fake_clouds
from tests.support.fake_clouds import HARD_TO_QUOTE

SLICE = ("--accelerator", "tpu-v5-lite-podslice", "--topology", "4x4", "--hosts", "4")
GKE = ("--name", "bert", "--image", "here/quartet", *SLICE, "--bucket", "b", "--poll", "0.01")


@pytest.fixture
def cluster(tmp_path):
    fake_clouds.needs_git()
    played = fake_clouds.Played(tmp_path)
    for name in ("kubectl", "xpk", "docker"):
        played.stub(name)
    return played


def gke(cluster, *options):
    words = (*GKE, *options, "--", *HARD_TO_QUOTE)
    return cluster.run("gke.sh", *words, PIPED="kubectl docker")


def becomes(cluster, *states):
    """Plays the JobSet's conditions, look after look."""
    for state in states[:-1]:
        cluster.answer("kubectl", "get", out=state)
    cluster.answer("kubectl", "get", out=states[-1], once=False)


def applied(cluster) -> dict:
    (call,) = cluster.calls("kubectl", "apply")
    return yaml.safe_load(call["stdin"])


def job(jobset: dict) -> dict:
    return jobset["spec"]["replicatedJobs"][0]["template"]["spec"]


def test_a_jobset_is_applied_followed_and_its_success_is_ours(cluster):
    becomes(cluster, "", "bert", "bert Completed")
    cluster.answer("kubectl", "logs", out="[pod/bert-slice-0-0-x] Finished at step 6 of 6.\n")
    done = gke(cluster, "--chips", "8", "--topology", "4x8", "--spot", "--restarts", "5")
    assert done.returncode == 0, done.stderr
    assert "Finished at step 6" in done.stdout
    assert len(cluster.calls("kubectl", "logs", "--follow")) == 2
    assert not cluster.calls("kubectl", "delete")
    check_pods(applied(cluster))
    check_restarts(applied(cluster))


def check_pods(jobset: dict) -> None:
    """Every host has a pod with its chips, the bucket and the program, word by word."""
    assert jobset["metadata"]["name"] == "bert"
    assert (job(jobset)["completions"], job(jobset)["parallelism"]) == (4, 4)
    assert job(jobset)["completionMode"] == "Indexed"
    pod = job(jobset)["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["python", "-m", "launch.attempt", "--"]
    assert container["args"] == HARD_TO_QUOTE
    assert container["resources"]["limits"] == {"google.com/tpu": 8}
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x8",
        "cloud.google.com/gke-spot": "true",
    }
    (volume,) = pod["volumes"]
    assert volume["csi"]["volumeAttributes"]["bucketName"] == "b"
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/mnt/bucket"}]
    check_user(pod, 1000)


def check_user(pod: dict, user: int) -> None:
    """The pod runs as the user who may write to the bucket."""
    assert pod["containers"][0]["securityContext"] == {
        "runAsNonRoot": user != 0,
        "runAsUser": user,
        "allowPrivilegeEscalation": False,
    }
    mounted = pod["volumes"][0]["csi"]["volumeAttributes"]["mountOptions"].split(",")
    assert f"uid={user}" in mounted


def check_restarts(jobset: dict) -> None:
    """Pre-emptions and stops restart all pods and are not counted; failures are."""
    policy = jobset["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 5
    (rule,) = policy["rules"]
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert job(jobset)["backoffLimit"] == 0
    preempted, stopped = job(jobset)["podFailurePolicy"]["rules"]
    assert preempted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    pod = job(jobset)["template"]["spec"]
    assert stopped["onExitCodes"]["values"] == [AGAIN]
    assert stopped["onExitCodes"]["containerName"] == pod["containers"][0]["name"]
    assert pod["restartPolicy"] == "Never"  # or there may be no podFailurePolicy


def test_as_root_a_pod_runs_as_root(cluster):
    becomes(cluster, "", "bert Completed")
    gke(cluster, "--as-root")
    check_user(job(applied(cluster))["template"]["spec"], 0)


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_the_images_user_may_write_data_and_runs(name):
    lines = (fake_clouds.ROOT / "launch" / name).read_text().splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert steps[-1] == ["USER", "1000"]
    assert steps[-2][0] == "RUN"
    assert "useradd --uid 1000" in steps[-2][1]
    assert "install --directory --owner=1000 data runs" in steps[-2][1]
    assert ["WORKDIR", "/quartet"] in steps


def test_a_jobset_that_is_there_already_is_followed(cluster):
    becomes(cluster, "bert", "bert Completed")
    assert gke(cluster).returncode == 0
    assert not cluster.calls("kubectl", "apply")


@pytest.mark.parametrize(
    ("states", "said"), [(("", "bert Failed"), "has failed"), (("", "bert", ""), "is gone")]
)
def test_a_jobset_that_fails_or_is_deleted_is_our_failure(cluster, states, said):
    becomes(cluster, *states)
    done = gke(cluster)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_failed_look_at_the_cluster_is_repeated(cluster):
    cluster.answer("kubectl", "get", out="")
    cluster.answer("kubectl", "get", err="timed out", code=1)
    becomes(cluster, "bert Completed")
    assert gke(cluster).returncode == 0
    assert len(cluster.calls("kubectl", "get")) == 3


def test_the_image_is_the_commits(cluster, tmp_path):
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
    assert echoed.stdout.splitlines() == HARD_TO_QUOTE
    assert not cluster.calls("kubectl")


def test_stop_deletes_the_jobset(cluster):
    assert cluster.run("gke.sh", "--name", "bert", "--stop").returncode == 0
    (call,) = cluster.calls("kubectl")
    assert call["words"][:4] == ["kubectl", "delete", "jobset", "bert"]
