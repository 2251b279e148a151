# Install rules: one export set a component, so that a user of the core alone is never asked for MPI.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(disttune_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/disttune)

install(TARGETS disttune EXPORT disttune-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT disttune-targets NAMESPACE disttune:: DESTINATION ${disttune_config_dir})

foreach(component mpi testing)
  if(TARGET disttune_${component})
    set_target_properties(disttune_${component} PROPERTIES EXPORT_NAME ${component})
    get_target_property(file_sets disttune_${component} INTERFACE_HEADER_SETS)
    set(headers "")
    if(file_sets)
      set(headers FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    endif()
    install(TARGETS disttune_${component} EXPORT disttune-${component}-targets
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
      ${headers})
    install(EXPORT disttune-${component}-targets NAMESPACE disttune::
      DESTINATION ${disttune_config_dir})
  endif()
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/disttune-config.cmake.in
  ${PROJECT_BINARY_DIR}/disttune-config.cmake INSTALL_DESTINATION ${disttune_config_dir})
# Before 1.0 a minor version may break what was there before.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/disttune-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/disttune-config.cmake
  ${PROJECT_BINARY_DIR}/disttune-config-version.cmake
  ${PROJECT_SOURCE_DIR}/cmake/disttune_source_digest.cmake
  DESTINATION ${disttune_config_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
