#include "agent/train/same_start.h"

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::train {
namespace {

constexpr int64_t kRunsOfEach = 8;
constexpr int64_t kRunValues = 256;
constexpr size_t kRanksNamed = 16;

std::string named(const std::vector<size_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == kRanksNamed) return text + " and " + std::to_string(ranks.size() - i) + " more";
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

Result<Digest> sample_digest(parallel::Composition& model) {
  std::vector<parallel::ValueRun> runs;
  for (const ArenaEntry& entry : model.state().arena->entries) {
    const int64_t stride = std::max(entry.count / kRunsOfEach, kRunValues);
    for (int64_t at = 0; at < entry.count; at += stride) {
      runs.push_back(
          {model.state().parameters + entry.offset + at, std::min(kRunValues, entry.count - at)});
    }
  }
  Sha256 sha;
  TRY(model.transfer().read(runs, [&](std::span<const float> values) {
    sha.update(values.data(), values.size_bytes());
    return Status();
  }));
  return sha.finish();
}

Status expect_same_parameters(comm::Communicator& world, const Digest& mine) {
  TRY_ASSIGN(const std::vector<Digest> all, world.all_gather_value(mine));
  if (std::ranges::count(all, mine) == std::ssize(all)) return {};
  const Digest most = *std::ranges::max_element(
      all, {}, [&](const Digest& digest) { return std::ranges::count(all, digest); });
  std::vector<size_t> others;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != most) others.push_back(rank);
  }
  // Every rank has the answer before one of them leaves.
  (void)world.barrier();
  return internal("[begin] expected all " + std::to_string(all.size()) +
                      " ranks to draw the same initial parameters, " + named(others) +
                      " drew others: compare the seed and the version of lockstep-worker there",
                  mine == most ? Blame::kPeer : Blame::kUnknown);
}

}  // namespace lockstep::train
