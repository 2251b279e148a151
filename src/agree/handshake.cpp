// The beginning of a cold call: shape, handshake, adoption, and how a difference is named.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "agree/agreement.hpp"
#include "agree/differences.hpp"
#include "agree/digest.hpp"
#include "core/group_state.hpp"
#include "core/rank_list.hpp"

namespace disttune::agree {

namespace {

/// Texts that explain a difference are cut here; digests are always of the whole.
constexpr std::size_t k_longest_text = std::size_t{256} << 10;
/// So many sides are shown in full.
constexpr std::size_t k_named_sides = 4;

/// Words of the handshake. The first four, and the length, keep their meaning in all protocol
/// versions, so that ranks of different versions can say so. Pairs are a digest and its complement.
enum Word : std::size_t {
  k_protocol = 0,
  k_tool = 2,
  k_sequence = 4,
  k_fields = 6,  ///< seven pairs
  k_always_tune = 20,
  k_version_check,
  k_retry_crashed,
  k_crashed,
  k_lacks_record,          ///< some rank has no valid record
  k_lacks_fitting_record,  ///< … or one that VERSION_CHECK refuses
  k_holder,                ///< size − rank of the lowest holder, 0: none
  k_fitting_holder,
  k_record,             ///< pair, over the holders
  k_resumable = 30,     ///< (size − rank) · 2^40 + bytes
  k_store = 31,         ///< pair, over the ranks that can write
  k_store_writer = 33,  ///< size − rank of the lowest rank that can write
  k_store_changed,      ///< some rank's store is not the one it exchanged last
  k_handshake_words = 48
};
constexpr int k_resume_shift = 40;

/// Ids as they travel: not negative, so that they differ from "nothing"; 0 stays "none".
std::int64_t store_word(std::uint64_t id) {
  return id == 0
             ? 0
             : std::max<std::int64_t>(static_cast<std::int64_t>(id & ~(std::uint64_t{1} << 63)), 1);
}

Agreed agreed_alone(const Hello& mine) {
  Agreed agreed;
  agreed.always_tune = mine.always_tune;
  agreed.version_check = mine.version_check;
  agreed.retry_crashed = mine.retry_crashed;
  if (!mine.record.empty() && !mine.always_tune &&
      (!mine.version_check || mine.record_fits_versions))
    agreed.record_rank = 0;
  agreed.record_everywhere = agreed.record_rank.has_value();
  agreed.crashed = mine.crashed;
  if (!agreed.record_rank && mine.resumable > 0) agreed.resume_rank = 0;
  agreed.resume_bytes = agreed.resume_rank ? mine.resumable : 0;
  agreed.writer = mine.store_id != 0;
  return agreed;
}

}  // namespace

struct Agreement::Field {
  std::string_view name;
  std::string_view text;
};

// ── Shape ───────────────────────────────────────────────────────────────────────────────────────

Value Agreement::shape(const Value& hardware) {
  if (alone()) return {};
  if (!m_group->state().shape) exchange_hardware(hardware);
  return *m_group->state().shape;
}

void Agreement::exchange_hardware(const Value& hardware) {
  // As many rounds as there are kinds of hardware: in each, the largest digest that is left says
  // its text. All ranks usually have one kind.
  const std::string mine(hardware.text());
  const std::int64_t word = digest(mine);
  std::vector<std::string> texts;
  std::vector<std::int64_t> done;
  for (int kinds = 0; kinds < size(); ++kinds) {
    const bool left = std::ranges::find(done, word) == done.end();
    std::int64_t largest = left ? word : k_nothing;
    max({&largest, 1}, "shape");
    if (largest == k_nothing) break;
    std::int64_t holder = word == largest ? size() - rank() : 0;
    max({&holder, 1}, "shape");
    std::string text = mine;
    broadcast(text, size() - static_cast<int>(holder));
    texts.push_back(std::move(text));
    done.push_back(largest);
  }
  std::ranges::sort(texts);
  std::vector<Value> hardware_texts;
  hardware_texts.reserve(texts.size());
  for (std::string& t : texts) hardware_texts.push_back(Value::from_canonical(std::move(t)));
  std::vector<Value> nodes;
  for (const int n : m_group->ranks_per_node()) nodes.emplace_back(n);
  const Value shape = Value::dict({{"size", size()},
                                   {"ranks_per_node", Value::tuple(nodes)},
                                   {"hardware", Value::list(hardware_texts)}});
  {
    const std::lock_guard lock(m_group->state().mutex);
    m_group->state().shape = shape;
  }
}

// ── Handshake ───────────────────────────────────────────────────────────────────────────────────

Agreed Agreement::handshake(const Hello& mine) {
  m_announced_call = mine.function;
  if (mine.key != Value()) m_announced_call += fmt::format(" {}", shortened(mine.key.text()));
  if (alone()) return agreed_alone(mine);
  std::vector<std::int64_t> words(k_handshake_words, k_nothing);
  const auto put = [&](std::size_t at, std::int64_t d) {
    words[at] = d;
    words[at + 1] = ~d;
  };
  const auto equal = [&](std::size_t at) { return words[at] == ~words[at + 1]; };
  const std::array<Field, 7> fields{{{"function", mine.function},
                                     {"identity of the function", mine.identity.text()},
                                     {"MODE", mine.mode},
                                     {"key", mine.key.text()},
                                     {"overwritten arguments", mine.overwritten.text()},
                                     {"measuring policy", mine.policy.text()},
                                     {"candidates after pruning", mine.candidates.text()}}};
  put(k_protocol, k_protocol_version);
  put(k_tool, digest(k_version));
  put(k_sequence, static_cast<std::int64_t>(m_sequence));
  for (std::size_t i = 0; i < fields.size(); ++i) put(k_fields + 2 * i, digest(fields[i].text));

  const bool holds = !mine.record.empty();
  const bool fits = holds && mine.record_fits_versions;
  const std::int64_t place = size() - rank();
  words[k_always_tune] = mine.always_tune;
  words[k_version_check] = mine.version_check;
  words[k_retry_crashed] = mine.retry_crashed;
  words[k_crashed] = mine.crashed;
  words[k_lacks_record] = !holds;
  words[k_lacks_fitting_record] = !fits;
  words[k_holder] = holds ? place : 0;
  words[k_fitting_holder] = fits ? place : 0;
  if (holds) put(k_record, digest(mine.record));
  words[k_resumable] = mine.resumable == 0
                           ? 0
                           : (place << k_resume_shift) + static_cast<std::int64_t>(mine.resumable);
  const std::int64_t store = store_word(mine.store_id);
  const auto& ids = m_group->state().store_ids;
  if (store != 0) put(k_store, store);
  words[k_store_writer] = store != 0 ? place : 0;
  words[k_store_changed] = ids.empty() || ids[static_cast<std::size_t>(rank())] != store;

  max(words, "handshake");

  if (!equal(k_protocol))
    disagree("agreement protocol version", std::to_string(k_protocol_version));
  if (!equal(k_tool)) disagree("disttune version", k_version);
  if (!equal(k_sequence)) {
    const std::string text = fmt::format(
        "disttune: ranks are out of step: their cold calls on this group are numbered {} to {}",
        ~words[k_sequence + 1], words[k_sequence]);
    close(k_closed_by_disagreement, text.c_str());
    throw Disagreement(text);
  }
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (!equal(k_fields + 2 * i)) disagree(fields[i].name, std::string(fields[i].text));

  const auto lowest = [&](std::size_t at) -> std::optional<int> {
    if (words[at] <= 0) return std::nullopt;
    return size() - static_cast<int>(words[at]);
  };
  Agreed agreed;
  agreed.always_tune = words[k_always_tune] != 0;
  agreed.version_check = words[k_version_check] != 0;
  agreed.retry_crashed = words[k_retry_crashed] != 0;
  agreed.crashed = words[k_crashed] != 0;
  if (!agreed.always_tune)
    agreed.record_rank = lowest(agreed.version_check ? k_fitting_holder : k_holder);
  const bool lacking = words[agreed.version_check ? k_lacks_fitting_record : k_lacks_record] != 0;
  agreed.record_everywhere = agreed.record_rank && !lacking && equal(k_record);
  if (!agreed.record_rank && words[k_resumable] > 0) {
    agreed.resume_rank = size() - static_cast<int>(words[k_resumable] >> k_resume_shift);
    agreed.resume_bytes =
        static_cast<std::size_t>(words[k_resumable] & ((std::int64_t{1} << k_resume_shift) - 1));
  }
  if (words[k_store_writer] == 0 || equal(k_store))
    agreed.writer = store != 0 && rank() == lowest(k_store_writer);
  else
    agreed.writer = is_writer(store, words[k_store_changed] != 0);
  return agreed;
}

bool Agreement::is_writer(std::int64_t store, bool changed) {
  auto& ids = m_group->state().store_ids;
  if (changed) ids = gather(store, "stores");
  const auto lowest = std::ranges::find(ids, store);
  return store != 0 && lowest - ids.begin() == rank();
}

std::string Agreement::adopt(const Agreed& agreed, std::string mine) {
  if (!agreed.record_everywhere) broadcast(mine, *agreed.record_rank);
  return mine;
}

// ── Differences ─────────────────────────────────────────────────────────────────────────────────

void Agreement::disagree(std::string_view what, const std::string& text) {
  // Only now that all ranks know of the difference does it cost more than one MAX: who stands
  // where, and one text a side.
  const std::vector<std::int64_t> digests = gather(digest(text), "difference");
  struct Side {
    std::int64_t digest;
    std::vector<int> ranks;
    std::string call, text;
  };
  std::vector<Side> sides;
  for (int r = 0; r < size(); ++r) {
    const std::int64_t d = digests[static_cast<std::size_t>(r)];
    const auto at = std::ranges::find(sides, d, &Side::digest);
    if (at != sides.end())
      at->ranks.push_back(r);
    else
      sides.push_back({d, {r}, {}, {}});
  }
  for (std::size_t i = 0; i < std::min(sides.size(), k_named_sides); ++i) {
    std::string call = m_announced_call.empty() ? m_what : m_announced_call;
    broadcast(call, sides[i].ranks.front());
    std::string said = text.substr(0, k_longest_text);
    broadcast(said, sides[i].ranks.front());
    sides[i].call = std::move(call);
    sides[i].text = std::move(said);
  }

  std::string message = fmt::format("disttune: ranks disagree about the {}", what);
  const bool one_call =
      std::ranges::all_of(sides, [&](const Side& s) { return s.call == sides[0].call; });
  if (one_call) message += fmt::format(" in a call of {}", sides[0].call);
  for (std::size_t i = 0; i < std::min(sides.size(), k_named_sides); ++i) {
    message += fmt::format("{} {}", i == 0 ? ":" : ";", core::name_ranks(sides[i].ranks));
    if (!one_call) message += fmt::format(", calling {},", sides[i].call);
    message += fmt::format(" {} {}", sides[i].ranks.size() == 1 ? "has" : "have",
                           shortened(sides[i].text));
  }
  if (sides.size() > k_named_sides)
    message += fmt::format("; {} more groups of ranks differ", sides.size() - k_named_sides);
  if (sides.size() > 1)
    if (const std::string d = differences(sides[0].text, sides[1].text); !d.empty())
      message += fmt::format(" (the first two differ in {})", d);
  if (what == "identity of the function")
    message +=
        "; captured values and global constants are part of a function: pass what differs between "
        "ranks as an argument, or leave it out by name (ignore=[\"rank\"])";
  ended_alike();
  throw Disagreement(message);
}

}  // namespace disttune::agree
