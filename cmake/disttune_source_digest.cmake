# disttune_source_digest(TARGET FILES file…)
#
# Defines DISTTUNE_SOURCE_DIGEST, a string literal, for the sources of TARGET: a digest of the named
# files' contents. Given to a launcher as `.source(DISTTUNE_SOURCE_DIGEST)` it makes records of an
# older source a miss. File names and dates do not count; the order of the list does not either.
# CMake runs again by itself when one of the files changes.
#
# Files are relative to the calling folder. A file that is missing is an error.
function(disttune_source_digest target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FILES")
  if(NOT TARGET ${target})
    message(FATAL_ERROR "disttune_source_digest: ${target} is not a target")
  endif()
  if(NOT arg_FILES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "disttune_source_digest: use disttune_source_digest(TARGET FILES file…)")
  endif()
  set(digests "")
  foreach(file IN LISTS arg_FILES)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    if(NOT EXISTS ${file} OR IS_DIRECTORY ${file})
      message(FATAL_ERROR "disttune_source_digest: there is no file ${file}")
    endif()
    file(SHA256 ${file} digest)
    list(APPEND digests ${digest})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  list(SORT digests)
  string(SHA256 digest "${digests}")
  get_target_property(type ${target} TYPE)
  set(scope PRIVATE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    set(scope INTERFACE)
  endif()
  target_compile_definitions(${target} ${scope} "DISTTUNE_SOURCE_DIGEST=\"${digest}\"")
endfunction()
