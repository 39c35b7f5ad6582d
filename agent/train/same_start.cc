#include "agent/train/same_start.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "agent/model/init.h"

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

// Returns the ranks whose digest is not the one that most ranks have.
std::vector<size_t> minority(const std::vector<Digest>& all) {
  const auto votes = [&](const Digest& digest) { return std::ranges::count(all, digest); };
  if (votes(all[0]) == std::ssize(all)) return {};
  const Digest most = *std::ranges::max_element(all, {}, votes);
  std::vector<size_t> others;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != most) others.push_back(rank);
  }
  return others;
}

}  // namespace

Digest draws_digest(const ModelDesign& design, uint64_t seed) {
  const std::vector<Parameter> table = parameter_table(design);
  const ParameterArena arena = parameter_arena(design, whole_model(design));
  std::array<float, kRunValues> values{};
  Sha256 sha;
  for (const ArenaEntry& entry : arena.entries) {
    const Parameter& parameter = table[static_cast<size_t>(entry.id)];
    sha.update(parameter.dims.data(), sizeof(parameter.dims));
    const int64_t stride = std::max(entry.count / kRunsOfEach, kRunValues);
    for (int64_t at = 0; at < entry.count; at += stride) {
      const std::span<float> run(values.data(),
                                 static_cast<size_t>(std::min(kRunValues, entry.count - at)));
      model::initialise({.parameter = parameter,
                         .entry = entry,
                         .shard = arena.shard,
                         .layers = residual_layers(design),
                         .seed = seed},
                        at, run);
      sha.update(run.data(), run.size_bytes());
    }
  }
  return sha.finish();
}

Status expect_same_draws(comm::Communicator& world, const Digest& mine) {
  TRY_ASSIGN(const std::vector<Digest> all, world.all_gather_value(mine));
  const std::vector<size_t> others = minority(all);
  if (others.empty()) return {};
  // Every rank has the answer before one of them leaves. An error of the barrier adds nothing to
  // the one below.
  (void)world.barrier();
  const bool is_other = std::ranges::count(others, static_cast<size_t>(world.rank())) > 0;
  return internal("[begin] expected all " + std::to_string(all.size()) +
                      " ranks to draw the same initial parameters, " + named(others) +
                      " drew others: compare the seed and the version of lockstep-worker there",
                  is_other ? Blame::kUnknown : Blame::kPeer);
}

}  // namespace lockstep::train
