#!/usr/bin/env bash
# Trains on a TPU slice of a GKE cluster, through pre-emptions, until the program has finished.
#
#   launch/gke.sh --name bert --image REGISTRY/quartet --build --accelerator tpu-v5-lite-podslice \
#     --topology 4x4 --hosts 4 --chips 4 --bucket my-bucket -- \
#     python -m pretrain.main --config=configs/bert.py:base --workdir=/mnt/bucket/runs/bert
#
# Makes a JobSet of gke.yaml in the cluster that kubectl speaks to, and shows what it says until it
# has finished or failed.  It goes on if this script is ended: the same command follows it again, and
# --stop deletes it, after it has saved.  Pre-emptions and maintenance start it anew, as often as it
# takes; failures of the program do so --restarts times.
#
# With --xpk CLUSTER the xpk command that does the same is run instead; the bucket is then what
# `xpk storage attach` has mounted there.
#
# A workdir is a folder: gs://... as a --workdir is refused.  Text is read wherever it is.
# The bucket is mounted at /mnt/bucket, and has to have a hierarchical namespace: a checkpoint is
# complete when its folder is renamed, and other buckets cannot do that.  On a bucket the lock of a
# workdir does not keep another job out: give each run its own.
#
# The program runs as user 1000, who owns what is in the bucket's folder.  xpk decides on that itself:
# attach its storage with the mount option uid=1000.
#
# Needed here: kubectl or xpk, git, python3 and, for --build, docker.  Needed in the cluster: the
# JobSet controller, the Cloud Storage FUSE driver, and a node pool of such a slice.

name=quartet            # --name NAME  of the JobSet
image=                  # --image IMAGE  of a container registry; its tag will be the commit
build=no                # --build  build the image and push it first
commit=HEAD             # --commit COMMIT  of the code
accelerator=            # --accelerator NAME  such as tpu-v5-lite-podslice or tpu-v6e-slice
topology=               # --topology SHAPE  of the slice, such as 4x4
hosts=1                 # --hosts N  of the slice: its chips by those of a host
chips=4                 # --chips N  of each host
bucket=                 # --bucket BUCKET  a name, or gs://name; mounted at /mnt/bucket
service_account=default # --service-account NAME  of Kubernetes, with leave to write to the bucket
as_root=no              # --as-root  where a node gives its TPUs to root alone; else user 1000
spot=no                 # --spot  nodes that are cheaper, and may be taken away at any time
restarts=3              # --restarts N  after failures of the program
poll=30                 # --poll SECONDS  between looks at what becomes of it
delete=no               # --delete  delete the JobSet when it has ended; it costs nothing
stop=no                 # --stop  delete it now, after it has saved
xpk=                    # --xpk CLUSTER  use xpk on this cluster
zone=                   # --zone ZONE  of that cluster
project=                # --project PROJECT  of that cluster
type=                   # --type TYPE  of slice for xpk, such as v5litepod-16

# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

main() {
  options "$@"
  check_name "$name"
  check_words image accelerator topology bucket service_account xpk zone project type
  check_numbers hosts chips restarts
  check_bucket
  [[ $stop == no ]] || { remove && exit; }
  needs image
  ((${#program[@]})) || die "name a program to run, after --"
  check_place
  check_commit "$commit"
  image=$image:$(git -C "$root" rev-parse --short=12 "$commit^{commit}")
  [[ $build == no ]] || build
  if [[ $xpk ]]; then
    with_xpk
  else
    needs accelerator topology bucket
    with_kubectl
  fi
}

# A slice of that size, and a workdir that all of its pods see.
check_place() {
  local hint="name one below /mnt/bucket" own='' several=$hosts
  if [[ $xpk ]]; then
    check_slice --type "$type"
    ! has_hosts "$type" || several=2
  elif [[ $topology =~ ^[1-9][0-9]*(x[1-9][0-9]*)*$ ]]; then
    ((${topology//x/*} == hosts * chips)) ||
      die "--topology $topology has $((${topology//x/*})) chips, and not --hosts $hosts of --chips $chips"
  fi
  ((10#$several < 2)) || own="each pod's own disk"
  check_program "$hint" "$own"
}

build() {
  echo "+ git archive $commit | docker build --tag $image --file launch/Dockerfile -"
  [[ $dry_run == yes ]] ||
    git -C "$root" archive "$commit" | docker build --tag "$image" --file launch/Dockerfile -
  run docker push "$image"
}

with_xpk() {
  needs type zone
  local command=(xpk workload create --cluster="$xpk" --zone="$zone" --workload="$name")
  [[ -z $project ]] || command+=(--project="$project")
  command+=(--tpu-type="$type" --num-slices=1 --docker-image="$image" --max-restarts="$restarts")
  command+=(--restart-on-exit-codes=75 --termination-grace-period-seconds=300)
  run "${command[@]}" --command="python -m launch.attempt -- $(quoted "${program[@]}")"
}

with_kubectl() {
  local what=''
  [[ $dry_run == no ]] || { plan && return; }
  [[ $(ended) ]] || manifest | run kubectl apply --filename=-
  until [[ $what == *Completed* || $what == *Failed* ]]; do
    follow || true # there is no pod yet, or one has just gone
    sleep "$poll"
    what=$(ended) || what=unknown
    [[ $what ]] || die "the JobSet $name is gone"
  done
  [[ $delete == no ]] || remove
  [[ $what == *Completed* ]] || { say "the JobSet $name has failed; --stop deletes it" && exit 1; }
}

plan() {
  ended
  run kubectl apply --filename=- && manifest
  follow
  say "again, every $poll s, until it is Completed or Failed"
  [[ $delete == no ]] || remove
}

# Nothing if there is no such JobSet; else its name and the conditions that hold, at last Completed
# or Failed.
ended() {
  run kubectl get jobset "$name" --ignore-not-found \
    --output='jsonpath={.metadata.name} {.status.conditions[?(@.status=="True")].type}'
}

since=1970-01-01T00:00:00Z
follow() {
  local code=0
  run kubectl logs --follow --prefix --container=train --max-log-requests="$hosts" \
    --since-time="$since" --selector="jobset.sigs.k8s.io/jobset-name=$name" || code=$?
  since=$(date -u +%Y-%m-%dT%H:%M:%SZ)
  return "$code"
}

remove() {
  if [[ $xpk ]]; then
    run xpk workload delete --cluster="$xpk" --zone="$zone" --workload="$name" --force
  else
    run kubectl delete jobset "$name" --ignore-not-found
  fi
}

# gke.yaml with the values of the options.
manifest() {
  local text words user=1000 is_ordinary=true fill='import string, sys
values = dict(word.split("=", 1) for word in sys.argv[1:])
print(string.Template(sys.stdin.read()).substitute(values), end="")'
  text=$(grep -v '^#' "$root/launch/gke.yaml")
  [[ $spot == yes ]] || text=$(grep -v gke-spot <<< "$text")
  [[ $as_root == no ]] || user=0 is_ordinary=false
  words=$(python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "${program[@]}")
  python3 -c "$fill" name="$name" image="$image" program="$words" restarts="$restarts" \
    accelerator="$accelerator" topology="$topology" hosts="$hosts" chips="$chips" \
    bucket="$bucket" service_account="$service_account" user="$user" is_ordinary="$is_ordinary" \
    <<< "$text"
}

main "$@"
