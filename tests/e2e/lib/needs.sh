# needs WHAT...: ends the test as failed where one of these programs or files is missing, or the user is not root. Sourced.
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
