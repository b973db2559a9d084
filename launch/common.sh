# What the launch scripts share: strict mode, options, and commands that are shown before they run.
# shellcheck shell=bash disable=SC2034
#
# An option of a script is a line in it: the variable, its default, and after "# " the option, a word
# in capitals if it takes a value, two blanks, and what it is for.  --help prints these lines.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dry_run=no  # --dry-run  prints the commands and runs none of them
program=()  # what comes after --

say() { echo "[launch] $*" >&2; }
die() {
  say "error: $*"
  exit 2
}

# options ARGUMENT...: sets the script's variables, and `program` to what comes after --
options() {
  local option row variable
  while (($#)) && [[ $1 != -- ]]; do
    option=${1%%=*}
    [[ $option != --help && $option != -h ]] || { usage && exit 0; }
    row=$(rows | grep -E "^[^|]*\|$option( [A-Z]+)?\|") || die "there is no option $option; see $0 --help"
    variable=${row%%|*}
    if [[ ! $row =~ ^[^|]*\|--[a-z-]+\ [A-Z] ]]; then
      [[ $1 != *=* ]] || die "$option takes no value"
      printf -v "$variable" %s yes
    elif [[ $1 == *=* ]]; then
      printf -v "$variable" %s "${1#*=}"
    else
      (($# > 1)) || die "$option wants a value"
      printf -v "$variable" %s "$2"
      shift
    fi
    shift
  done
  (($# < 2)) || program=("${@:2}")
}

# The options, each as  variable|--option VALUE|what it is for|default
rows() {
  sed -nE 's/^([a-z_]+)=([^ ]*) +# (--[a-z-]+( [A-Z]+)?)  +(.*)$/\1|\3|\5|\2/p' \
    "$0" "$root/launch/common.sh"
}

# The comment at the head of the script, and its options.
usage() {
  local option text default
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
  echo
  echo "Options, and in brackets what they are without being given:"
  rows | while IFS='|' read -r _ option text default; do
    [[ -z $default || $default == no ]] || text="$text [$default]"
    printf '  %-22s %s\n' "$option" "$text"
  done
}

# needs VARIABLE...: these options are to be given.
needs() {
  local variable
  for variable; do
    [[ -n ${!variable} ]] || die "--${variable//_/-} is to be given; see $0 --help"
  done
}

# Clouds take no other names.
check_name() {
  [[ $1 =~ ^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$ ]] ||
    die "--name $1: take lower-case letters, digits and hyphens, 40 at most"
}

# What reaches another shell, or YAML, says nothing there.  check_words VARIABLE...: each of these
# options is a plain word, if it is given.
check_words() {
  local variable
  for variable; do
    [[ ${!variable} =~ ^([A-Za-z0-9]([A-Za-z0-9_./:=@+-]*[A-Za-z0-9/])?)?$ ]] ||
      die "--${variable//_/-} $(printf %q "${!variable}"): take letters, digits and _ . / : = @ + -"
  done
}

# check_numbers VARIABLE...
check_numbers() {
  local variable
  for variable; do
    [[ ${!variable} =~ ^[0-9]+$ ]] ||
      die "--${variable//_/-} $(printf %q "${!variable}"): take a whole number"
  done
}

# check_slice OPTION TYPE: a slice of this size exists.  Of a generation that is unknown here, any may.
check_slice() {
  local size=${2##*-} sizes
  case $2 in
    v2-*) sizes="8 32 128 256 512" ;;
    v3-*) sizes="8 32 64 128 256 512 1024 2048" ;;
    v5litepod-* | v6e-*) sizes="1 4 8 16 32 64 128 256" ;;
    v4-* | v5p-*) # its cores: two of each chip, in hosts of four chips
      [[ $size =~ ^[1-9][0-9]*$ ]] && ((size % 8 == 0)) && return
      die "$1 $2: take a multiple of 8, as ${2%-*}-16"
      ;;
    v5e-*) die "$1 $2: this is called v5litepod-$size there" ;;
    *) return 0 ;;
  esac
  [[ " $sizes " == *" $size "* ]] || die "$1 $2: the sizes of ${2%-*} are ${sizes// /, }"
}

# has_hosts TYPE: a slice of this type has several; on one there are 8 chips or cores at most.
has_hosts() { [[ ${1##*-} =~ ^[0-9]+$ ]] && ((10#${1##*-} > 8)); }

# A Google bucket by its bare name, which may be given as gs://name, too.
check_bucket() {
  bucket=${bucket#gs://}
  bucket=${bucket%/}
  [[ ! $bucket =~ [/:] ]] || die "--bucket $bucket: name a Google bucket, and no folder in it"
}

# The program, before anything is rented.  check_program HINT [OWN]: refuses a workdir that is an
# address and, where a machine's OWN disk is no place for it, one that is not named or is relative.
workdir=''
is_run=no # the program trains
check_program() {
  local hint=$1 own=${2-} word is_next=no
  for word in "${program[@]}"; do
    if [[ $is_next == yes ]]; then
      workdir=$word is_next=no
    elif [[ $word =~ ^--?workdir(=|$) ]]; then
      [[ $word == *=* ]] || is_next=yes
      workdir=${word#*=}
    elif [[ $word =~ ^(pretrain|finetune)\.main$ ]]; then
      is_run=yes
    fi
  done
  [[ $is_run == yes ]] || return 0
  check_keys
  [[ $workdir != *://* ]] || die "--workdir=$workdir is an address, and no folder: $hint"
  [[ -n $own && $workdir != /* ]] || return 0
  [[ -z $workdir ]] || die "--workdir=$workdir is on $own: $hint"
  die "without a --workdir the run is on $own: $hint"
}

# The recipe's keys, where the environment of the README is at hand to read it.
check_keys() {
  local python=$root/.venv/bin/python
  [[ -x $python ]] || return 0
  (cd "$root" && "$python" -m launch.check -- "${program[@]}") || exit 2
}

# quoted WORD...: the words as a shell reads them.
quoted() {
  local word quote="'\\''" between=
  for word; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]] || word="'${word//"'"/$quote}'"
    printf '%s%s' "$between" "$word"
    between=' '
  done
}

# run WORD...: shows a command and runs it, unless this is a dry run.
run() {
  if [[ $dry_run == yes ]]; then
    echo "+ $(quoted "$@")"
  else
    echo "+ $(quoted "$@")" >&2
    "$@"
  fi
}

# The tree at a commit is what travels; what is not committed stays behind.
check_commit() {
  git -C "$root" rev-parse --quiet --verify "$1^{commit}" > /dev/null || die "there is no commit $1"
  [[ $1 != HEAD || -z $(git -C "$root" status --porcelain) ]] ||
    say "what is not committed stays behind: git status"
}
