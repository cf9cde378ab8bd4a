# Configures and builds this tree, whatever its build folder holds. To be sourced by bash scripts, and by
# programs of tests/lib.
#
#   configure PRESET            tests included: a command never decides which targets the next command finds
#   build PRESET [TARGET ...]   configures, then builds; prints what fails

twinloft_tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# A build folder that does not configure was interrupted, moved, or made by another compiler: it is configured
# from scratch. TWINLOFT_TESTS=ON is repeated here, since the preset of an older checkout does not set it.
configure() (
  cd "$twinloft_tree" && mkdir -p build || exit 1
  log=$(mktemp) || exit 1
  trap 'rm -f "$log"' EXIT
  exec 9>"build/$1.lock"
  flock 9
  cmake --preset "$1" -DTWINLOFT_TESTS=ON >"$log" 2>&1 9>&- || cmake --fresh --preset "$1" -DTWINLOFT_TESTS=ON >"$log" 2>&1 9>&- || { cat "$log"; exit 1; }
)

build() (
  preset=$1
  shift
  configure "$preset" && cd "$twinloft_tree" || exit 1
  exec 9>"build/$preset.lock"  # two builds of one folder at once would damage it
  flock 9
  [ $# = 0 ] || set -- --target "$@"
  cmake --build --preset "$preset" -j "$(nproc)" "$@" -- --quiet 9>&-
)
