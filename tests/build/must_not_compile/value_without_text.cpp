// expect: disttune: no canonical text for this type; give it a static constexpr member `tuned` or a
// function void disttune_describe(disttune::TextWriter&, const T&)
#include "disttune/value.hpp"

struct Opaque {};
auto text = disttune::describe(Opaque{});
