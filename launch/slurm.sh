#!/usr/bin/env bash
# Trains on a Slurm cluster, again and again until the program has finished.
#
#   launch/slurm.sh --name bert --nodes 2 --gpus 8 -- \
#     python -m pretrain.main --config=configs/bert.py:base --workdir=/shared/runs/bert
#
# Submits one job and prints its number.  Its tasks find each other by themselves, a task for each
# GPU or, with --per node, for each node.  Some time before the job's time is up, the program is told
# to save; the job is then put into the queue again and goes on from there, as it does after a
# pre-emption or the failure of a node.  When the program fails, the job ends with its exit code;
# scancel ends it for good.
#
# With --array it submits a job array instead: a task for each line of a file, which is a program:
#
#   python -m launch.sweep --config=configs/bert.py -- python -m pretrain.main |
#     launch/slurm.sh --name sweep --gpus 1 --array - --at-once 4
#
# A workdir is a folder that every node has to see under the same path: take one
# of the cluster's shared file system.  A bucket (gs://, s3://) is refused; text is read there, too.

name=quartet      # --name NAME  of the job
nodes=1           # --nodes N  how many
gpus=8            # --gpus N  on each node; 0: on CPUs
per=gpu           # --per WHAT  a task for each gpu, or for each node
cpus=             # --cpus N  of each task; the cluster's default
time=24:00:00     # --time TIME  after which the job goes back into the queue
grace=300         # --grace SECONDS  before that, in which to save
restarts=100      # --restarts N  at most
partition=        # --partition NAME  the cluster's default
account=          # --account NAME  the user's default
flags=            # --flags FLAGS  more flags for sbatch
venv=.venv        # --venv FOLDER  of the Python environment, seen from the repository
commit=           # --commit COMMIT  of the code, in a copy; by default the files as they are
array=            # --array FILE  of a program on each line; -: standard input
at_once=          # --at-once N  tasks of the array that run at the same time; all by default
log=slurm-%j.log  # --log FILE  of what all tasks say; %j is the job's number
inside=no         # --inside  what the job itself calls

# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

main() {
  options "$@"
  check_words name partition account
  check_numbers nodes gpus grace restarts
  [[ -z $at_once ]] || check_numbers at_once
  [[ -z $array ]] || read_array
  ((${#program[@]})) || die "name a program to run, after --"
  check_place
  [[ $per == gpu || $per == node ]] || die "--per is gpu or node, not $per"
  [[ $venv == /* ]] || venv=$root/$venv
  if [[ $inside == yes ]]; then
    train
  else
    submit
  fi
}

# The default workdir is below the repository, which all nodes see.
check_place() {
  check_program "name one that every node sees, on the cluster's shared file system"
}

# Sets `lines`, each of which a shell reads as the words of a program.
lines=()
read_array() {
  local line split='import shlex, sys
print(*shlex.split(sys.argv[1]), sep="\0", end="\0")'
  ((${#program[@]} == 0)) || die "--array has the programs: name none after --"
  [[ $array == - ]] || [[ -f $array && -r $array ]] || die "--array $array: there is no such file"
  while IFS= read -r line || [[ $line ]]; do
    [[ ! $line =~ ^[[:space:]]*(#|$) ]] || continue
    # By the rules of a shell, but nothing in it is run.
    mapfile -d '' -t program < <(python3 -c "$split" "$line" 2> /dev/null)
    ((${#program[@]})) || die "--array: this is no program: $line"
    check_place
    lines+=("$(quoted "${program[@]}")")
  done < <(if [[ $array == - ]]; then cat; else cat "$array"; fi)
  ((${#lines[@]})) || die "--array $array: there is no program in it"
}

submit() {
  local tasks=1 folder=$root command
  [[ $per == node || $gpus == 0 ]] || tasks=$gpus
  command=(sbatch --job-name="$name" --nodes="$nodes" --ntasks-per-node="$tasks" --time="$time")
  [[ $gpus == 0 ]] || command+=(--gpus-per-node="$gpus")
  [[ -z $cpus ]] || command+=(--cpus-per-task="$cpus")
  [[ -z $partition ]] || command+=(--partition="$partition")
  [[ -z $account ]] || command+=(--account="$account")
  [[ -z $commit ]] || snapshot
  command+=(--requeue --signal="TERM@$grace" --output="$log" --open-mode=append --chdir="$folder")
  # shellcheck disable=SC2206  # they are words
  command+=($flags)
  [[ -z $array ]] || command+=(--array="0-$((${#lines[@]} - 1))${at_once:+%$at_once}")
  # Slurm runs a copy of a script, which would not find the files beside it: hence --wrap.
  run "${command[@]}" --wrap="$(wrap)"
}

# What the job does: this script once more, in an array with the program of the task's number.
wrap() {
  local again n
  again=$(quoted "$root/launch/slurm.sh" --inside --gpus "$gpus" --per "$per" --cpus "$cpus" \
    --venv "$venv" --restarts "$restarts" --)
  [[ $array ]] || { echo "$again $(quoted "${program[@]}")" && return; }
  # shellcheck disable=SC2016  # it is of the job
  echo 'case $SLURM_ARRAY_TASK_ID in'
  for n in "${!lines[@]}"; do
    echo "$n) $again ${lines[n]} ;;"
  done
  echo 'esac'
}

# A copy of the code at the commit, in which it runs now and after every restart.
snapshot() {
  check_commit "$commit"
  folder=$root/runs/code-$(git -C "$root" rev-parse --short=12 "$commit^{commit}")
  if [[ ! -e $folder ]]; then
    run mkdir -p "$folder.new" "$root/data"
    run git -C "$root" archive --output="$folder.new/code.tar" "$commit"
    run tar xf "$folder.new/code.tar" -C "$folder.new"
    run ln -s "$root/data" "$root/runs" "$folder.new/"
    run mv "$folder.new" "$folder" # in one go: a copy that was broken off is not taken for whole
  fi
}

# Inside the job: every task, then what their end means.
train() {
  local code=0 told=no command=(srun --label --kill-on-bad-exit=1)
  trap 'told=yes' TERM # by scancel or by Slurm's own requeueing; --signal speaks to the tasks alone
  export PATH=$venv/bin:$PATH
  if ((gpus)); then
    # JAX takes task n for GPU n of those that it sees, so every task is to see all of its node.
    command+=(--gpu-bind=none)
    [[ $per == gpu ]] || JAX_LOCAL_DEVICE_IDS=$(seq -s, 0 $((gpus - 1)))
    [[ $per == gpu ]] || export JAX_LOCAL_DEVICE_IDS
  fi
  [[ -z $cpus ]] || command+=(--cpus-per-task="$cpus")
  run "${command[@]}" python -m launch.attempt -- "${program[@]}" || code=$?
  [[ $code == 75 && $told == no ]] || exit "$code"
  ((${SLURM_RESTART_COUNT:-0} < restarts)) || die "gave up after $restarts restarts"
  say "the program was stopped before its end; it goes on"
  run scontrol requeue "$SLURM_JOB_ID"
}

main "$@"
