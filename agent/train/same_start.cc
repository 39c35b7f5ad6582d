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

// Adds the ranks whose digest is not the one that most of the replicas have.
void add_minority(const std::vector<int64_t>& replicas, const std::vector<Digest>& all,
                  std::vector<size_t>& others) {
  const auto digest_of = [&](int64_t rank) { return all[static_cast<size_t>(rank)]; };
  if (std::ranges::count(replicas, digest_of(replicas[0]), digest_of) == std::ssize(replicas)) {
    return;
  }
  const auto votes = [&](int64_t rank) {
    return std::ranges::count(replicas, digest_of(rank), digest_of);
  };
  const int64_t most = *std::ranges::max_element(replicas, {}, votes);
  for (const int64_t rank : replicas) {
    if (digest_of(rank) != digest_of(most)) others.push_back(static_cast<size_t>(rank));
  }
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

Status expect_same_parameters(comm::Communicator& world, const Mesh& mesh, const Digest& mine) {
  TRY_ASSIGN(const std::vector<Digest> all, world.all_gather_value(mine));
  std::vector<size_t> others;
  for (const std::vector<int64_t>& replicas : axis_groups(mesh, Axis::kData)) {
    add_minority(replicas, all, others);
  }
  if (others.empty()) return {};
  std::ranges::sort(others);
  // Every rank has the answer before one of them leaves.
  (void)world.barrier();
  const bool is_other = std::ranges::count(others, static_cast<size_t>(world.rank())) > 0;
  return internal("[begin] expected all " + std::to_string(all.size()) +
                      " ranks to draw the same initial parameters, " + named(others) +
                      " drew others: compare the seed and the version of lockstep-worker there",
                  is_other ? Blame::kUnknown : Blame::kPeer);
}

}  // namespace lockstep::train
