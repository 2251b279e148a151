// Where two canonical values differ, said in the words of their fields.
#pragma once

#include <string>
#include <vector>

#include "disttune/value.hpp"

namespace disttune::store {

/// Lines "path: stored → now" for two full key texts (RecordKey::text), one a field:
/// `key[0]: (128,) → (256,)`, `hardware.memory_gib: 80 → 141`, `identity.source: changed` (texts
/// too long to read, such as digests). A field that only one side has is `absent` on the other.
[[nodiscard]] std::vector<std::string> key_differences(const Value& stored, const Value& now);

}  // namespace disttune::store
