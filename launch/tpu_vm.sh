#!/usr/bin/env bash
# Trains on a Cloud TPU, through pre-emptions, until the program has finished.
#
#   launch/tpu_vm.sh --name bert --zone us-east5-a --type v5litepod-16 --spot --bucket my-bucket -- \
#     python -m pretrain.main --config=configs/bert.py:base --workdir=/mnt/bucket/runs/bert
#
# Asks for a queued resource of one slice, or uses the one of that name; copies the code at a commit
# to every worker, installs, starts the program and shows what it says, each line marked [worker].
# The program runs on if this script is ended: the same command finds and follows it again, and
# --stop, with the same name and zone, ends it after it has saved.  A machine that was taken away is
# asked for anew, and the program goes on from its last checkpoint.  When it has finished, the
# machine is deleted; when it fails, its exit code is this script's, and the machine stays.
#
# A workdir is a folder: gs://... as a --workdir is refused.  Text is read wherever it is.
# All workers have to see one and the same workdir, and it has to outlive the machine: a path on a
# file store that --setup mounts on every worker, or on a bucket, which --bucket mounts at /mnt/bucket
# if the image has gcsfuse.  The bucket has to have a hierarchical namespace: a checkpoint is complete
# when its folder is renamed, and other buckets cannot do that.  On a bucket the lock of a workdir
# does not keep another machine out: give each run its own.
#
# Needed here: gcloud, signed in, and git.  JAX finds the workers of a pod by itself.

name=quartet      # --name NAME  of the queued resource and of its node
zone=             # --zone ZONE  such as us-east5-a
project=          # --project PROJECT  gcloud's own by default
type=             # --type TYPE  of slice, such as v5litepod-16, v4-32, v6e-64
runtime=          # --runtime VERSION  the image; by default the one for that type
spot=no           # --spot  cheaper, and may be taken away at any time
reserved=no       # --reserved  from a reservation of the project
autocheckpoint=no # --autocheckpoint  SIGTERM before maintenance, so that the program saves (alpha)
create_flags=     # --create-flags FLAGS  more flags for `queued-resources create`
iap=no            # --iap  reach the workers through Identity-Aware Proxy (alpha)
ssh_flags=        # --ssh-flags FLAGS  more flags for `tpu-vm ssh` and `scp`, such as --internal-ip
commit=HEAD       # --commit COMMIT  of the code
bucket=           # --bucket BUCKET  a name, or gs://name; mounted by gcsfuse at /mnt/bucket
setup=            # --setup COMMAND  run on every worker before the packages are installed
delete=finished   # --delete WHEN  the machine goes when the program has finished; or always, never
attempts=100      # --attempts N  at most so many machines and starts of the program
poll=30           # --poll SECONDS  between looks at what becomes of it
stop=no           # --stop  tell the program to save and end, instead of starting it

# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

reached=no # has this machine ever answered?
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

main() {
  options "$@"
  needs zone
  check_name "$name"
  check_words zone project type runtime bucket
  check_numbers attempts
  check_bucket
  where=(--zone="$zone" --quiet)
  [[ -z $project ]] || where+=(--project="$project")
  # shellcheck disable=SC2206  # they are words
  workers=(--worker=all "${where[@]}" $ssh_flags)
  tpu_vm=(gcloud compute tpus tpu-vm)
  [[ $iap == no ]] || { tpu_vm=(gcloud alpha compute tpus tpu-vm) && workers+=(--tunnel-through-iap); }
  if [[ $stop == yes ]]; then
    on_all "quartet/launch/worker.sh stop"
    [[ $delete != always ]] || delete
    exit
  fi
  needs type
  check_slice --type "$type"
  ((${#program[@]})) || die "name a program to run, after --"
  check_place
  [[ $delete =~ ^(finished|always|never)$ ]] || die "--delete is finished, always or never, not $delete"
  check_commit "$commit"
  [[ $dry_run == no ]] || { plan && exit; }
  trap 'say "the program goes on; the same command follows it again, --stop ends it"; exit 130' INT
  persist
}

# What --setup mounts, and where, is its own matter.
check_place() {
  local hint="name one below /mnt/bucket, with --bucket" own=''
  [[ $setup ]] || ! has_hosts "$type" || own="each worker's own disk"
  check_program "$hint" "$own"
  [[ $bucket || $setup || $workdir != /mnt/bucket/* ]] ||
    die "nothing is mounted at /mnt/bucket: say --bucket"
  [[ $setup || $delete == never || $is_run == no || $workdir == /* ]] ||
    say "the run is on the machine's own disk, and goes with it: --delete is $delete"
}

plan() {
  describe queued-resources state.state
  create
  say "every $poll s, until it is ACTIVE:"
  describe queued-resources state.state
  describe tpu-vm state
  prepare
  follow
  [[ $delete == never ]] || delete
}

# Attempts until one finishes, or fails by its own fault.
persist() {
  local code check failures=0
  for ((tries = 1; tries <= attempts; tries++)); do
    ready
    if running || prepare; then
      reached=yes failures=0 code=0 check="quartet/launch/worker.sh intact"
      follow || code=$?
    else
      code=$? check=true
      ((++failures))
    fi
    case $code in
      0) finish 0 "the program has finished" ;;
      75) say "the program was stopped before its end; it goes on" ;;
      *) ! sound "$check" || finish "$code" "it failed with exit code $code" ;;
    esac
    ((failures < 3)) || unreachable
    pause
  done
  finish 1 "gave up after $attempts attempts"
}

# Waits until the machine is there, asking for it if need be.
ready() {
  local now was='' unknown=0
  while :; do
    now=$(state)
    [[ $now == "$was" ]] || say "$name: $now"
    case $now in
      ABSENT) create || finish $? "the queued resource could not be created" ;;
      READY) return ;;
      LOST) delete && reached=no ;;
      FAILED) failed ;;
      UNKNOWN) [[ $was && $((++unknown)) -lt 10 ]] || die "gcloud cannot tell the state of $name" ;;
    esac
    was=$now
    pause
  done
}

# ABSENT, READY, LOST (taken away), FAILED, UNKNOWN, or what it is waiting for.
state() {
  local found
  found=$(describe queued-resources state.state)
  [[ $found != SUSPENDED ]] || found=LOST
  if [[ $found == ACTIVE ]]; then
    found=$(describe tpu-vm state)
    [[ ! $found =~ ^(PREEMPTED|TERMINATED|STOPPED|ABSENT)$ ]] || found=LOST
  fi
  echo "$found"
}

# describe KIND FIELD
describe() {
  local command=(gcloud compute tpus "$1" describe "$name" --format="value($2)" "${where[@]}")
  [[ $dry_run == no ]] || { run "${command[@]}" && return; }
  if "${command[@]}" 2> "$scratch/errors"; then
    return
  elif grep -q NOT_FOUND "$scratch/errors"; then
    echo ABSENT
  else
    cat "$scratch/errors" >&2
    echo UNKNOWN
  fi
}

create() {
  local command=(gcloud)
  [[ $autocheckpoint == no ]] || command+=(alpha)
  command+=(compute tpus queued-resources create "$name" --node-id="$name" "${where[@]}")
  command+=(--accelerator-type="$type" --runtime-version="${runtime:-$(image)}")
  [[ $autocheckpoint == no ]] || command+=(--autocheckpoint-enabled)
  [[ $spot == no ]] || command+=(--spot)
  [[ $reserved == no ]] || command+=(--reserved)
  # shellcheck disable=SC2206  # they are words
  command+=($create_flags)
  run "${command[@]}"
}

image() {
  case $type in
    v5lite*) echo v2-alpha-tpuv5-lite ;;
    v5p*) echo v2-alpha-tpuv5 ;;
    v6e*) echo v2-alpha-tpuv6e ;;
    *) echo tpu-ubuntu2204-base ;;
  esac
}

delete() { run gcloud compute tpus queued-resources delete "$name" --force "${where[@]}"; }

# The cloud could not serve the request: another one may be served, unless a quota is in the way.
failed() {
  local why
  why=$(describe queued-resources state.failedData.error.message)
  say "the request failed: $why"
  delete || return 0
  [[ $why != *[Qq]uota* ]] || die "ask for more quota, or for a smaller slice"
  ((++tries <= attempts)) || finish 1 "gave up after $attempts attempts"
}

# on_all COMMAND: on every worker; the exit code is one that is not 0, if there is one.
on_all() {
  run "${tpu_vm[@]}" ssh "$name" "${workers[@]}" --ssh-flag=-oConnectTimeout=30 \
    --ssh-flag=-oServerAliveInterval=30 --command="$1"
}

# A program that an earlier call of this script has started.
running() { on_all "quartet/launch/worker.sh running" 2> /dev/null; }

# Starting is a call of its own: gcloud repeats a call whose connection was lost, and a program is
# started once however often its id is named.
prepare() {
  local id archive=$scratch/quartet.tgz
  id="$(date +%s)-$$"
  run git -C "$root" archive --format=tar.gz --output="$archive" "$commit" &&
    run "${tpu_vm[@]}" scp "$archive" "$name:" "${workers[@]}" &&
    on_all "$(install)" &&
    on_all "quartet/launch/worker.sh start $id $(quoted "${program[@]}")"
}

# What a worker does before that.  Data and runs on its own disk outlive the copy of the code.
install() {
  local steps=("if [ -e quartet ]; then quartet/launch/worker.sh stop; fi" "rm -rf quartet")
  steps+=("mkdir -p quartet data runs" "tar xzf quartet.tgz -C quartet")
  steps+=("ln -s ../data ../runs quartet/")
  [[ -z $setup ]] || steps+=("{ $setup; }")
  [[ -z $bucket ]] || steps+=("quartet/launch/worker.sh mount $bucket /mnt/bucket")
  steps+=("quartet/launch/worker.sh install requirements-tpu.txt")
  printf '%s && ' "${steps[@]}"
  printf true
}

# 255 is ssh's: the connection was lost, and not the program.
follow() {
  local code=255
  while [[ $code == 255 ]]; do
    code=0
    on_all "quartet/launch/worker.sh follow" || code=$?
    [[ $code != 255 ]] || sound "quartet/launch/worker.sh intact" || break
  done
  return "$code"
}

# sound COMMAND: is the machine there, and does every worker answer this command with success?
sound() { [[ $(state) == READY ]] && on_all "$1"; }

# finish CODE REASON
finish() {
  say "$2"
  if [[ $delete == always || ($delete == finished && $1 == 0) ]]; then
    delete || say "$name could not be deleted: it is still there, and costs"
  elif [[ $(describe queued-resources state.state) != ABSENT ]]; then
    say "$name is still there, and costs: $0 --name $name --zone $zone --stop --delete always"
  fi
  exit "$1"
}

# Workers that have never answered will not on another machine, either.
unreachable() {
  [[ $reached == yes ]] || finish 255 "the workers do not answer: is ssh allowed, and its key known?"
  say "the workers do not answer any more"
  delete || true
  reached=no failures=0
}

pause() { sleep "$poll"; }

main "$@"
