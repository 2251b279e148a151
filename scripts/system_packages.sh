#!/usr/bin/env bash
# system_packages.sh GROUP…: makes sure that what a group needs is on this machine. A group is asked
# for by what it is used for, not by package name, so that any distribution and any toolchain will
# do; the names are those of Debian 12 and Ubuntu 24.04.
# Groups: build (compiler, CMake, header-only libraries, Python), test (GoogleTest), mpi (Open MPI),
# mpich, opencl (headers and PoCL).
source "$(dirname "$0")/common.sh"

has_header() { printf '#include <%s>\n' "$1" | "${CXX:-c++}" -std=c++20 -x c++ -E - >/dev/null 2>&1; }
cmake_is_new_enough() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p') || return 1
  [[ -n $version && $(printf '%s\n3.25\n' "$version" | sort -V | head -n 1) == 3.25 ]]
}
has_venv() { python3 -c 'import ensurepip, venv' 2>/dev/null; }
has_python_headers() {
  python3 -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null
}

# The packages that are missing, as apt knows them.
missing() {
  local group
  for group in "$@"; do
    case $group in
      build)
        command -v "${CXX:-c++}" >/dev/null || echo g++
        cmake_is_new_enough || echo cmake
        command -v ninja >/dev/null || echo ninja-build
        has_header nlohmann/json.hpp || echo nlohmann-json3-dev
        has_header fmt/format.h || echo libfmt-dev
        has_venv || echo python3-venv
        has_python_headers || echo python3-dev
        ;;
      test) has_header gtest/gtest.h || echo libgtest-dev ;;
      mpi)
        command -v mpicxx >/dev/null || echo libopenmpi-dev
        command -v mpirun >/dev/null || echo openmpi-bin
        ;;
      mpich)
        command -v mpicxx.mpich >/dev/null || echo libmpich-dev
        command -v mpiexec.mpich >/dev/null || echo mpich
        ;;
      opencl)
        has_header CL/cl.h || echo ocl-icd-opencl-dev
        compgen -G '/etc/OpenCL/vendors/pocl*.icd' >/dev/null || echo pocl-opencl-icd
        ;;
      *) fail "system_packages.sh: unknown group $group" ;;
    esac
  done
}

mapfile -t packages < <(missing "$@")
((${#packages[@]})) || exit 0

as_root=()
if ((EUID != 0)); then as_root=(sudo -n); fi
if ! command -v apt-get >/dev/null || { ((EUID != 0)) && ! sudo -n true 2>/dev/null; }; then
  fail "these packages are missing and this account may not install them: ${packages[*]}
disttune: install them (Debian, Ubuntu: apt-get install ${packages[*]}), then repeat the command"
fi
say "system packages: ${packages[*]}"
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q
  --no-install-recommends "${packages[@]}")
# A machine's package lists may be missing or old: they are fetched only when the install asks for it.
"${install[@]}" >/dev/null 2>&1 || {
  "${as_root[@]}" apt-get update -q >/dev/null || fail "apt-get update failed; see above"
  "${install[@]}" >/dev/null || fail "apt-get could not install ${packages[*]}; see above"
}
mapfile -t packages < <(missing "$@")
((${#packages[@]} == 0)) || fail "installed, yet still not usable: ${packages[*]}"
