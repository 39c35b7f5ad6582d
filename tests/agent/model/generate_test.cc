#include "agent/model/transformer/generate.h"

#include <gtest/gtest.h>

#include <set>

#include "agent/optim/optimizer.h"
#include "tests/agent/model/tiny_gpt.h"

namespace lockstep::model {
namespace {

using test::Text;
using test::TinyGpt;

const ModelConfig kTiny{2, 16, 2, 24, 17};

// Teaches the model that token t is at position t mod 5, so that each token determines the next.
void learn_to_count(TinyGpt& gpt) {
  optim::Optimizer optimizer = optim::Optimizer::create(kTiny, gpt.store.arena(),
                                                        {.parameters = gpt.store.values().data(),
                                                         .gradients = gpt.sink.gradients().data()},
                                                        {}, {}, kernels::cpu_ops())
                                   .value();
  Text text(kTiny, 4, 24, 5);
  for (size_t i = 0; i < text.tokens.size(); ++i) {
    text.tokens[i] = static_cast<int32_t>(i % 5);
    text.targets[i] = static_cast<int32_t>((i + 1) % 5);
  }
  for (int64_t step = 1; step <= 120; ++step) {
    gpt.sink.begin_step();
    gpt.forward_backward(text.input());
    optimizer.step(gpt.stream, {.learning_rate = 1e-2, .step = step});
  }
}

TEST(Generate, GoesOnAsItLearned) {
  TinyGpt gpt(kTiny, {4, 24});
  learn_to_count(gpt);
  const Result<std::vector<int32_t>> text =
      generate(gpt.model, gpt.store, {.prompt = {2}, .tokens = 40, .temperature = 0.0f});
  ASSERT_TRUE(text.ok()) << text.error().message;
  ASSERT_EQ(text->size(), 40u);
  for (size_t i = 0; i < text->size(); ++i) {
    ASSERT_EQ((*text)[i], static_cast<int32_t>((i + 3) % 5)) << "token " << i;
  }
  EXPECT_EQ(gpt.store.held(), 0);
}

TEST(Generate, GivesTheSameTextForTheSameSeed) {
  TinyGpt gpt(kTiny, {4, 24});
  const auto draw = [&](uint64_t seed) {
    return generate(gpt.model, gpt.store, {.prompt = {1, 2}, .tokens = 60, .seed = seed}).value();
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(Generate, DrawsAmongTheTopKAlone) {
  TinyGpt gpt(kTiny, {4, 24});
  const GenerateOptions greedy{.prompt = {1}, .tokens = 50, .temperature = 0.0f};
  const GenerateOptions top_one{.prompt = {1}, .tokens = 50, .temperature = 2.0f, .top_k = 1};
  EXPECT_EQ(generate(gpt.model, gpt.store, greedy).value(),
            generate(gpt.model, gpt.store, top_one).value());
  const GenerateOptions all{.prompt = {1}, .tokens = 300};
  const std::vector<int32_t> text = generate(gpt.model, gpt.store, all).value();
  EXPECT_GT(std::set<int32_t>(text.begin(), text.end()).size(), 10u);
}

// Neither tokens before the last `context` ones nor the window's padding affect the result.
TEST(Generate, SeesTheLastTokensOfALongPrompt) {
  TinyGpt gpt(kTiny, {4, 24});
  std::vector<int32_t> prompt(40, 3);
  for (size_t i = 0; i < 24; ++i) prompt[16 + i] = static_cast<int32_t>(i % 17);
  const std::vector<int32_t> tail(prompt.begin() + 16, prompt.end());
  EXPECT_EQ(generate(gpt.model, gpt.store, {.prompt = prompt, .tokens = 1}).value(),
            generate(gpt.model, gpt.store, {.prompt = tail, .tokens = 1}).value());
}

TEST(Generate, RefusesWhatItCannotGoOnFrom) {
  TinyGpt gpt(kTiny, {4, 24});
  for (const std::vector<int32_t>& prompt :
       {std::vector<int32_t>{}, std::vector<int32_t>{17}, std::vector<int32_t>{-1}}) {
    const auto text = generate(gpt.model, gpt.store, {.prompt = prompt, .tokens = 1});
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().code, Code::kInvalid);
  }
  Gpt stage =
      Gpt::create({kTiny, pipeline_stage(kTiny, 2, 0)}, kernels::cpu_ops(), gpt.stream, gpt.whole)
          .value();
  EXPECT_FALSE(generate(stage, gpt.store, {.prompt = {1}, .tokens = 1}).ok());
}

}  // namespace
}  // namespace lockstep::model
