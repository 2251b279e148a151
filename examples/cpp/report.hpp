// What the examples print: every candidate with its time, the choice, and where it came from.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include "disttune/disttune.hpp"

/// `before` is the explanation asked for before the call, `launches` how often the call launched.
inline void print_report(const disttune::Explanation& before,
                         const std::optional<disttune::Record>& record, int launches) {
  if (!record || record->tunings.empty()) {
    std::puts("no record was kept: the store cannot be written");
    return;
  }
  const disttune::TuningRecord& tuning = record->tunings.front();
  double default_ns = 0, winner_ns = 0;
  for (const disttune::CandidateRecord& c : tuning.candidates) {
    const bool wins = tuning.winner && c.config.identity() == *tuning.winner;
    if (wins) winner_ns = c.score_ns.value_or(0);
    if (c.config.identity() == tuning.default_config) default_ns = c.score_ns.value_or(0);
    if (c.score_ns)
      std::printf("%s %-40s %10.1f us\n", wins ? "*" : " ", c.config.display().c_str(),
                  *c.score_ns / 1000);
    else
      std::printf("  %-40s %s: %s\n", c.config.display().c_str(),
                  std::string(disttune::to_string(c.status)).c_str(), c.reason.c_str());
  }
  if (winner_ns > 0 && default_ns > 0)
    std::printf("the default takes %.2f times as long as the choice\n", default_ns / winner_ns);
  std::printf("record: %s\n", before.file.c_str());
  if (before.source == "store" && launches == 1)
    std::printf("the choice came from the store, without tuning: launches in this process: %d\n",
                launches);
  else
    std::printf("tuned in this process: launches: %d\n", launches);
}
