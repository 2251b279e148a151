#!/usr/bin/env bash
# disttune::mpi over MPICH; `make test` has Open MPI.
source "$(dirname "$0")/../common.sh"
scripts/setup.sh build test
(scripts/system_packages.sh mpich) || skip "MPICH could not be installed here"

build=$root/build/mpich
# Beside Open MPI its commands carry its name.
mpich() { command -v "$1.mpich" || command -v "$1"; }
cmake --preset test -B "$build" -DPython3_EXECUTABLE="$python" -DDISTTUNE_MPI=ON \
  -DMPI_CXX_COMPILER="$(mpich mpicxx)" -DMPIEXEC_EXECUTABLE="$(mpich mpiexec)" >/dev/null
cmake --build "$build" -j "$jobs" --target mpi_test example_ranks
ctest --test-dir "$build" --output-on-failure -R '^(mpi\.|example\.ranks)'
