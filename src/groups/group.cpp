#include "disttune/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "core/group_state.hpp"

DISTTUNE_NAMESPACE_BEGIN

ProcessGroup::ProcessGroup(int rank, int size, std::vector<int> ranks_per_node)
    : m_rank(rank),
      m_size(size),
      m_ranks_per_node(std::move(ranks_per_node)),
      m_state(std::make_unique<detail::GroupState>()) {
  if (size < 1 || rank < 0 || rank >= size)
    throw std::invalid_argument(
        fmt::format("disttune: a group of {} ranks has no rank {}", size, rank));
  if (m_ranks_per_node.empty()) m_ranks_per_node.push_back(size);
  std::ranges::sort(m_ranks_per_node);
  const auto total =
      std::accumulate(m_ranks_per_node.begin(), m_ranks_per_node.end(), std::int64_t{0});
  if (m_ranks_per_node.front() < 1 || total != size)
    throw std::invalid_argument(fmt::format(
        "disttune: ranks_per_node must be positive and sum up to the group's size ({}), not to {}",
        size, total));
  static std::atomic<std::uint64_t> groups{0};
  if (size > 1) m_place = ++groups;
}

ProcessGroup::~ProcessGroup() = default;

namespace {

class Local final : public ProcessGroup {
 public:
  Local() : ProcessGroup(0, 1, {1}) {}
  void all_reduce_max(std::span<std::int64_t>, const Wait&) override {}
  void abandon(std::uint64_t, std::string_view) noexcept override {}
};

}  // namespace

std::shared_ptr<ProcessGroup> local() {
  static const auto& group = *new auto(std::make_shared<Local>());
  return group;
}

DISTTUNE_NAMESPACE_END
