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
