// What agreeing costs beside the reductions that it is made of: 64 threads as ranks, 500
// candidates, ten timed runs each. Both alternatives make the same reductions, in turns in the same
// threads; processor time, summed over the ranks.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "agree/agreement.hpp"
#include "core/samples.hpp"
#include "disttune/testing/ranks.hpp"
#include "turns.hpp"

namespace {

using namespace std::chrono_literals;
using disttune::Value;

constexpr int k_ranks = 64;
constexpr std::size_t k_candidates = 500;
constexpr std::size_t k_timed = 10;
constexpr int k_tunings = 20;  ///< a round
constexpr int k_rounds = 9;

disttune::agree::Hello hello() {
  std::vector<Value> candidates;
  for (std::size_t i = 0; i < k_candidates; ++i)
    candidates.push_back(Value::dict({{"BLOCK_M", 16 << i % 5},
                                      {"BLOCK_N", 16 << i / 5 % 5},
                                      {"num_stages", i / 25 % 5},
                                      {"num_warps", 1 << i / 125}}));
  disttune::agree::Hello h;
  h.function = "gemm";
  h.identity = Value::dict({{"name", "gemm"}, {"version", "1"}});
  h.key = Value::tuple({4096, 4096, 4096, "float16"});
  h.policy = Value::dict({{"strategy", "fixed"}, {"warmup", 5}, {"repeat", 10}});
  h.candidates = Value::list(candidates);
  h.store_id = 7;
  return h;
}

/// One tuning by the rules; returns its reductions.
std::uint64_t agreed_tuning(disttune::ProcessGroup& group, const disttune::agree::Hello& mine,
                            std::vector<std::int64_t>& block) {
  disttune::agree::Agreement call(&group, 600s, "gemm");
  return call.run([&] {
    static_cast<void>(call.handshake(mine));
    std::vector<disttune::Status> votes(k_candidates, disttune::Status::ok);
    call.vote(votes);
    call.reduce(block);
    call.finish("the winner", 1000);
    return call.reductions();
  });
}

/// The same reductions and nothing else.
void bare_tuning(disttune::ProcessGroup& group, std::vector<std::int64_t>& handshake,
                 std::vector<std::int64_t>& votes, std::vector<std::int64_t>& block,
                 std::vector<std::int64_t>& decision) {
  for (auto* words : {&handshake, &votes, &block, &decision})
    group.all_reduce_max(*words, {group.now() + 600s, 600s, 1, "bare"});
}

}  // namespace

int main() {
  disttune::testing::Ranks ranks(k_ranks, disttune::testing::Time::real);
  const auto mine = hello();
  std::atomic<std::int64_t> spent[2][k_rounds] = {};
  std::atomic<std::uint64_t> reductions{0};
  const auto ends = ranks.run([&](disttune::ProcessGroup& group) {
    std::vector<std::int64_t> block(k_candidates * k_timed + disttune::core::k_trailer, 1000);
    std::vector<std::int64_t> handshake(48), votes(k_candidates), decision(66);
    for (int round = 0; round < k_rounds; ++round)
      for (int k = 0; k < 2; ++k) {
        const int which = (k + round) % 2;
        const std::int64_t before = bench::thread_ns();
        for (int i = 0; i < k_tunings; ++i) {
          if (which == 0)
            bare_tuning(group, handshake, votes, block, decision);
          else
            reductions = agreed_tuning(group, mine, block);
        }
        spent[which][round] += bench::thread_ns() - before;
      }
  });
  for (const auto& end : ends)
    if (end) {
      std::fprintf(stderr, "bench_ranks: %s\n", disttune::testing::what(end).c_str());
      return 1;
    }
  std::vector<double> bare, agreement, ratio;
  for (int round = 0; round < k_rounds; ++round) {
    bare.push_back(static_cast<double>(spent[0][round]) / (1e3 * k_ranks * k_tunings));
    agreement.push_back(static_cast<double>(spent[1][round]) / (1e3 * k_ranks * k_tunings));
    ratio.push_back(agreement.back() / bare.back());
  }
  bench::Report report;
  report.figure("bare reductions of a tuning, us a rank", bench::median(bare));
  report.figure("agreement of a tuning, us a rank", bench::median(agreement));
  report.limited("agreement / bare reductions", bench::median(ratio), 2.0);
  report.limited("reductions of a tuning with one batch", static_cast<double>(reductions.load()),
                 6);
  report.print();
  return 0;
}
