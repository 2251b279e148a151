# disttune_mpi_test(NAME COMMAND…): a test whose command starts MPI ranks, with what the
# launchers of Open MPI 4 and 5 need on a small machine and for root, and without what a sanitizer
# would find in the MPI library itself.
function(disttune_mpi_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES PROCESSORS 2 TIMEOUT 600
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;\
PRTE_ALLOW_RUN_AS_ROOT=1;PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1;\
OMPI_MCA_rmaps_base_oversubscribe=1;PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe;\
OMPI_MCA_hwloc_base_binding_policy=none;\
ASAN_OPTIONS=detect_leaks=0;TSAN_OPTIONS=ignore_noninstrumented_modules=1")
endfunction()
