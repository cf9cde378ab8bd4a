# build_programs: brings this tree's release build up to date, unless TWINLOFT_BIN names the programs. To be
# sourced.
build_programs() {
  [ -n "${TWINLOFT_BIN:-}" ] && return 0
  . "$(dirname "${BASH_SOURCE[0]}")/../../lib/build.sh"
  build release || exit 1
}

# needs WHAT...: fails the test if one of these programs or files is missing, or the user is not root.
needs() {
  local missing="" what
  for what in "$@"; do
    command -v "$what" >/dev/null || [ -e "$what" ] || missing="$missing $what"
  done
  [ "$(id -u)" = 0 ] || missing="$missing root"
  [ -z "$missing" ] && return 0
  echo "FAILED: this test needs$missing (tests/run installs what tests/lib/packages.sh lists)" >&2
  exit 1
}
