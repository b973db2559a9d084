#!/usr/bin/env bash
# One machine of a pod: installs, starts a program detached, follows it.  tpu_vm.sh calls this there.
#
#   worker.sh install FILE          an environment with the packages of a requirements file
#   worker.sh mount BUCKET PATH     a bucket as a folder, by gcsfuse
#   worker.sh start ID PROGRAM...   starts the program, once for each ID however often it is asked
#   worker.sh running               exit code 0 while a program runs
#   worker.sh follow                all its output; ends with its exit code, 143 if it was stopped
#                                   here, 76 if the machine went down under it
#   worker.sh intact                exit code 0 unless the machine went down under it
#   worker.sh stop                  SIGTERM, and waits until it has saved; SIGKILL after 5 minutes
#
# A connection that drops ends nothing: ask again.  What is known of the program is in ~/quartet-run.

set -euo pipefail

state=$HOME/quartet-run
python=$HOME/quartet-env/bin/python
patience=${QUARTET_PATIENCE:-300} # seconds
cd "$(dirname "$0")/.."
mkdir -p "$state"

# The images of TPU machines bring an older Python than JAX wants; uv fetches one where it is missing.
install() {
  if [[ ! -x $python ]]; then
    PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --user uv
    python3 -m uv venv --quiet --python 3.12 "$HOME/quartet-env"
  fi
  python3 -m uv pip install --quiet --python "$python" -r "$1"
}

mount() {
  ! mountpoint -q "$2" || return 0
  sudo mkdir -p "$2"
  sudo chown "$(id -u)" "$2"
  gcsfuse --implicit-dirs --metadata-cache-ttl-secs=0 "$1" "$2"
}

start() {
  local id=$1
  shift
  # The lock says that the program runs: it goes with it, however it ends.
  exec 9> "$state/lock"
  if ! flock --nonblock 9; then
    [[ $(cat "$state/id") == "$id" ]] && return
    echo "another program is running here" >&2
    return 1
  fi
  [[ ! -e $state/id || $(cat "$state/id") != "$id" ]] || return 0 # it has come and gone
  rm -f "$state/code" "$state/stop"
  echo "$id" > "$state/id"
  PATH=$(dirname "$python"):$PATH setsid "$python" -m launch.attempt --code "$state/code" -- "$@" \
    > "$state/log" 2>&1 < /dev/null &
  echo $! > "$state/pid"
}

running() { [[ -e $state/lock ]] && ! flock --nonblock "$state/lock" true; }

follow() {
  local code tail=(tail --lines=+1 --sleep-interval=0.2 "$state/log")
  ! running || tail+=(--pid="$(cat "$state/pid")" --follow)
  "${tail[@]}" | sed -u "s/^/[${HOSTNAME##*-w-}] /"
  [[ ! -e $state/stop ]] || exit 143
  [[ -e $state/code ]] || exit 76
  code=$(cat "$state/code")
  exit "${code/255/254}" # 255 is how ssh says that the connection was lost
}

intact() { running || [[ -e $state/code || -e $state/stop ]]; }

stop() {
  running || return 0
  touch "$state/stop"
  kill -TERM "$(cat "$state/pid")"
  flock --timeout "$patience" "$state/lock" true || kill -KILL -- "-$(cat "$state/pid")"
}

case ${1-} in
  install | mount | start | running | follow | intact | stop) "$@" ;;
  *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
