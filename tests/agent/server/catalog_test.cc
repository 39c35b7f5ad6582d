// The description of a job's parameters: what it may hold, and that every option counts in its
// digest.
#include "agent/server/catalog.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

namespace lockstep::server {
namespace {

Catalog small() {
  return {.tensors = {{.name = "w", .count = 10}}, .tables = {{.name = "user", .dim = 4}}};
}

TEST(Catalog, RefusesWhatServersCannotHold) {
  const struct {
    std::function<void(Catalog&)> change;
    std::string says;
  } cases[] = {
      {[](Catalog& c) { c.tensors[0].name = ""; }, "a name of 1 to 256 bytes, got 0"},
      {[](Catalog& c) { c.tensors[0].name = "a b"; }, "without spaces"},
      {[](Catalog& c) { c.tensors[0].count = 0; },
       "w: expected 1 to 1099511627776 elements, got 0"},
      {[](Catalog& c) { c.tables[0].dim = 0; },
       "user: expected rows of 1 to 65536 elements, got 0"},
      {[](Catalog& c) { c.tables[0].dim = 65537; }, "got 65537"},
      {[](Catalog& c) { c.tables[0].deviation = -1; }, "a deviation of at least 0"},
      {[](Catalog& c) { c.tables[0].deviation = NAN; }, "a deviation of at least 0"},
      {[](Catalog& c) { c.tables[0].life.half_life = -1; }, "a half-life of at least 0"},
      {[](Catalog& c) { c.tables[0].life.decay = 1; }, "a decay below 1"},
      {[](Catalog& c) { c.tables[0].optimizer.rounding_seed = 1; }, "no copies"},
      {[](Catalog& c) { c.tensors[0].optimizer.kind = optim::OptimizerKind::kMuon; },
       "servers have parts of matrices"},
      {[](Catalog& c) {
         c.tables[0].deviation = 1;
         c.tables[0].optimizer.kind = optim::OptimizerKind::kFtrl;
       },
       "begin with zeros"},
      {[](Catalog& c) { c.tables.resize(1025, c.tables[0]); }, "at most 65536 tensors and 1024"},
  };
  EXPECT_TRUE(check_catalog(small()).ok());
  for (const auto& each : cases) {
    Catalog changed = small();
    each.change(changed);
    const Status checked = check_catalog(changed);
    ASSERT_FALSE(checked.ok()) << each.says;
    EXPECT_EQ(checked.error().code, Code::kInvalid);
    EXPECT_NE(checked.error().message.find(each.says), std::string::npos)
        << checked.error().message;
  }
}

TEST(Catalog, HasAnotherDigestForEveryOtherOption) {
  const std::function<void(Catalog&)> changes[] = {
      [](Catalog&) {},
      [](Catalog& c) { c.tensors[0].name = "v"; },
      [](Catalog& c) { c.tensors[0].count = 11; },
      [](Catalog& c) { c.tensors[0].optimizer.kind = optim::OptimizerKind::kSgd; },
      [](Catalog& c) { c.tensors[0].optimizer.beta1 = 0.5; },
      [](Catalog& c) { c.tensors[0].optimizer.beta2 = 0.5; },
      [](Catalog& c) { c.tensors[0].optimizer.epsilon = 0.5; },
      [](Catalog& c) { c.tensors[0].optimizer.momentum = 0.5; },
      [](Catalog& c) { c.tensors[0].optimizer.nesterov = true; },
      [](Catalog& c) { c.tensors[0].optimizer.beta = 0.5; },
      [](Catalog& c) { c.tensors[0].optimizer.l1 = 0.5; },
      [](Catalog& c) { c.tensors[0].optimizer.weight_decay = 0.5; },
      [](Catalog& c) { c.tensors[0].optimizer.average_decay = 0.5; },
      [](Catalog& c) { c.tables[0].name = "item"; },
      [](Catalog& c) { c.tables[0].dim = 5; },
      [](Catalog& c) { c.tables[0].deviation = 0.5; },
      [](Catalog& c) { c.tables[0].optimizer.l1 = 0.5; },
      [](Catalog& c) { c.tables.push_back(c.tables[0]); },
  };
  std::set<Digest> digests;
  for (const auto& change : changes) {
    Catalog changed = small();
    change(changed);
    EXPECT_TRUE(digests.insert(digest_of(changed)).second) << digests.size();
  }
}

// A job that resumes may have other rows expire than before.
TEST(Catalog, HasTheSameDigestHoweverLongItsRowsLive) {
  Catalog changed = small();
  changed.tables[0].life = {.idle_max = 5, .frequency_min = 3, .half_life = 0.5, .decay = 0.1};
  EXPECT_EQ(digest_of(changed), digest_of(small()));
}

}  // namespace
}  // namespace lockstep::server
