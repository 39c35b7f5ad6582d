#include "agent/parallel/compose.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "agent/comm/make_communicator.h"
#include "agent/model/init.h"

namespace lockstep {
namespace {

const ModelConfig kConfig{1, 16, 1, 8, 32};

ComposeOptions options_for(const Mesh& mesh, Precision precision = Precision::kF32) {
  return {.config = kConfig,
          .mesh = mesh,
          .bucket_bytes = 4096,
          .optimizer = {},
          .precision = precision};
}

TEST(Composition, RefusesMeshesThatItDoesNotCarryOut) {
  auto world = make_thread_world(1);
  ASSERT_TRUE(world.ok());
  const auto wrong_size = Composition::create(options_for({.data = 2}), *world->front());
  ASSERT_FALSE(wrong_size.ok());
  EXPECT_EQ(wrong_size.error().code, Code::kInvalid);

  auto two = make_thread_world(2);
  ASSERT_TRUE(two.ok());
  for (const Mesh& mesh : {Mesh{.pipeline = 2}, Mesh{.tensor = 2}}) {
    const auto composition = Composition::create(options_for(mesh), *two->front());
    ASSERT_FALSE(composition.ok());
    EXPECT_NE(composition.error().message.find("not in this version"), std::string::npos);
  }
}

TEST(Composition, BroadcastsTheStateOfTheFirstRank) {
  auto world = make_thread_world(2);
  ASSERT_TRUE(world.ok());
  std::vector<std::jthread> ranks;
  for (auto& communicator : *world) {
    ranks.emplace_back([&communicator] {
      auto composition =
          Composition::create(options_for({.data = 2}, Precision::kBf16), *communicator);
      ASSERT_TRUE(composition.ok());
      Composition& model = **composition;
      EXPECT_EQ(model.place().data, communicator->rank());
      const ParameterArena& arena = model.store().arena();
      if (communicator->rank() == 0) {
        initialise_arena(kConfig, arena, {}, 7, model.store().parameters());
        model.first_moments()[3] = 0.25f;
        model.second_moments()[arena.entries.back().offset] = 0.5f;
      }
      ASSERT_TRUE(model.broadcast_state(true).ok());
      std::vector<float> expected(static_cast<size_t>(arena.count));
      initialise_arena(kConfig, arena, {}, 7, expected.data());
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), model.store().parameters()));
      EXPECT_EQ(model.first_moments()[3], 0.25f);
      EXPECT_EQ(model.second_moments()[arena.entries.back().offset], 0.5f);
      // The copies for the products are those of the parameters that came.
      const auto views = model.store().get(1, kLatestVersion);
      ASSERT_TRUE(views.ok());
      const ParamView& norm = views->front();  // ln_1.weight: ones
      EXPECT_EQ(norm.product.bf16()[0].bits, 0x3f80);
      model.store().release(1, kLatestVersion);
    });
  }
}

TEST(Composition, TakesTheNormOfAllGradients) {
  auto world = make_thread_world(1);
  ASSERT_TRUE(world.ok());
  auto composition = Composition::create(options_for({}), *world->front());
  ASSERT_TRUE(composition.ok());
  Composition& model = **composition;
  model.sink().begin_step(model.ops(), model.stream());
  model.sink().buffer(0)[0] = 3;
  model.sink().buffer(1)[0] = 4;
  const auto norm = model.gradient_norm();
  ASSERT_TRUE(norm.ok());
  EXPECT_DOUBLE_EQ(*norm, 5);
}

}  // namespace
}  // namespace lockstep
