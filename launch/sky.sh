#!/usr/bin/env bash
# Trains on machines that SkyPilot finds in any of its clouds, until the program has finished.
#
#   launch/sky.sh --name bert --gpus A100:8 --nodes 2 --spot --bucket gs://my-bucket -- \
#     python -m pretrain.main --config=configs/bert.py:base --workdir=/mnt/bucket/runs/bert
#
# Submits sky.yaml as a managed job and shows what it says; it goes on if this script is ended.
# SkyPilot asks anew for machines that are taken away, and the program goes on from its last
# checkpoint.  `sky jobs queue`, `sky jobs logs` and `sky jobs cancel` do the rest.
#
# A workdir is a folder: gs://... as a --workdir is refused.  Text is read wherever it is.
# The bucket is mounted at /mnt/bucket, and has to be one of Google with a hierarchical namespace: a
# checkpoint is complete when its folder is renamed, and other buckets cannot do that.  On a bucket
# the lock of a workdir does not keep another job out: give each run its own.
#
# Needed here: sky, with a cloud that it has checked, and git.

name=quartet # --name NAME  of the job
gpus=A100:8  # --gpus GPUS  of each node, as SkyPilot names them; tpu-v5litepod-8 with --tpu
nodes=1      # --nodes N  how many
tpu=no       # --tpu  install for a TPU instead of GPUs
spot=no      # --spot  cheaper, and may be taken away at any time
bucket=      # --bucket BUCKET  a name, or gs://name; mounted at /mnt/bucket
commit=HEAD  # --commit COMMIT  of the code
flags=       # --flags FLAGS  more flags for `sky jobs launch`, such as --infra gcp/us-central1

# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

main() {
  options "$@"
  needs bucket
  check_name "$name"
  check_words bucket
  check_numbers nodes
  [[ $bucket == *://* ]] || bucket=gs://$bucket
  [[ $gpus != tpu-* ]] || check_slice --gpus "${gpus#tpu-}"
  ((${#program[@]})) || die "name a program to run, after --"
  local own=''
  ((10#$nodes < 2)) || own="each node's own disk"
  check_program "name one below /mnt/bucket" "$own"
  check_commit "$commit"
  local command=(sky jobs launch --yes --name="$name" --gpus="$gpus" --num-nodes="$nodes")
  [[ $spot == no ]] || command+=(--use-spot)
  [[ $tpu == no ]] || command+=(--env=REQUIREMENTS=requirements-tpu.txt)
  # shellcheck disable=SC2206  # they are words
  command+=(--env="BUCKET=$bucket" --env="PROGRAM=$(quoted "${program[@]}")" $flags)
  run git -C "$root" archive --output="$scratch/code.tar" "$commit"
  run mkdir "$scratch/code"
  run tar xf "$scratch/code.tar" -C "$scratch/code"
  run "${command[@]}" --workdir="$scratch/code" "$root/launch/sky.yaml"
}

main "$@"
