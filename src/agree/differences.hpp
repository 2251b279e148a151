// What a Disagreement says of two values, in a few lines that people can act on.
#pragma once

#include <string>
#include <string_view>

namespace disttune::agree {

/// At most `limit` bytes of `text`, cut at a character's border and marked.
[[nodiscard]] std::string shortened(std::string_view text, std::size_t limit = 200);
/// For two dicts "entry 'x': 1 | 2", for two lists or tuples what only one side holds, or that the
/// order differs; nothing for other texts.
[[nodiscard]] std::string differences(std::string_view a, std::string_view b);

}  // namespace disttune::agree
