#include "agree/unify.hpp"

#include <map>

#include "agree/digest.hpp"

namespace disttune::agree {

std::size_t unify(Agreement& call, const Shelf& shelf) {
  if (call.alone()) return 0;
  std::map<std::int64_t, std::string> left;
  for (const std::string& key : shelf.keys) left.emplace(digest(key), key);
  std::size_t adopted = 0;
  while (true) {
    // The smallest key that any rank has left: a minimum is the maximum of complements.
    std::int64_t next = left.empty() ? k_nothing : ~left.begin()->first;
    call.reduce_words({&next, 1}, "unify");
    if (next == k_nothing) break;
    const bool mine = !left.empty() && left.begin()->first == ~next;
    std::string record = mine ? shelf.read(left.begin()->second) : std::string{};
    if (mine) left.erase(left.begin());
    const std::int64_t word = digest(record);
    // The lowest holder, whether somebody has none, and a pair over those that have one.
    std::int64_t words[4] = {mine ? call.size() - call.rank() : 0, !mine, k_nothing, k_nothing};
    if (mine) {
      words[2] = word;
      words[3] = ~word;
    }
    call.reduce_words(words, "unify");
    if (words[1] == 0 && words[2] == ~words[3]) continue;
    const int root = call.size() - static_cast<int>(words[0]);
    call.broadcast(record, root);
    if (mine && digest(record) == word) continue;
    shelf.adopt(record);
    ++adopted;
  }
  call.ended_alike();
  return adopted;
}

}  // namespace disttune::agree
