// The library's version and the namespace that carries it.
#pragma once

#define DISTTUNE_VERSION_MAJOR 0
#define DISTTUNE_VERSION_MINOR 1
#define DISTTUNE_VERSION_PATCH 0

// Everything lives in an inline namespace of the version: no C++ ABI is promised, and mixing two
// versions in one program is a link error instead of a crash. What is stable are the texts:
// canonical text, record schema, agreement protocol and environment names.
#define DISTTUNE_NAMESPACE_BEGIN \
  namespace disttune {           \
  inline namespace v0_1 {
#define DISTTUNE_NAMESPACE_END \
  }                            \
  }

DISTTUNE_NAMESPACE_BEGIN
inline constexpr const char* k_version = "0.1.0";
DISTTUNE_NAMESPACE_END
