# Sourced by the other scripts: where things are, and how they talk.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
venv=${DISTTUNE_VENV:-$root/.venv}
python=$venv/bin/python
jobs=${DISTTUNE_JOBS:-$(nproc)}
export PIP_DISABLE_PIP_VERSION_CHECK=1

# A compiler cache, where there is one, for CMake run by hand and by pip alike.
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
fi

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf 'disttune: %s\n' "$*" >&2
  exit 1
}
# A heavy suite ends with this when one of its parts cannot be had here.
skip() {
  printf 'skipped: %s\n' "$*"
  exit 77
}

# changed STAMP FILE…: true when the files differ from what STAMP remembers. `remember` writes it.
digest_of() { cat -- "$@" 2>/dev/null | sha256sum | cut -d' ' -f1; }
changed() { [[ ! -e $1 || $(cat "$1") != "$(digest_of "${@:2}")" ]]; }
remember() { digest_of "${@:2}" >"$1"; }
