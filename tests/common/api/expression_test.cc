#include "common/api/expression.h"

#include <gtest/gtest.h>

#include <regex>

#include "common/api/rule_checks.h"

namespace lockstep {
namespace {

TEST(Expression, PrintsItselfAsCelWithTheDefaultsOfFields) {
  const Scope spec("spec");
  const Scope train("spec.train");
  const Scope rule("spec.failure.rules[]");
  const Expression nodes = spec["nodes"];
  const std::pair<Expression, const char*> cases[] = {
      {nodes, "has(self.nodes) ? self.nodes : 1"},
      {nodes > 3, "(has(self.nodes) ? self.nodes : 1) > 3"},
      {rule["action"] == "Fail", "self.action == 'Fail'"},
      {train["optimizer.beta1"] > 0.5,
       "(has(self.optimizer) && has(self.optimizer.beta1) ? self.optimizer.beta1 : 0.9) > 0.5"},
      {!spec.given("train") || !spec.given("command"),
       "!has(self.train) || !(has(self.command) && self.command.size() > 0)"},
      {(spec.given("train") || spec.given("failure")) && spec.given("rendezvous"),
       "(has(self.train) || has(self.failure)) && has(self.rendezvous)"},
      {Expression(1) + 2 * Expression(3), "1 + 2 * 3"},
      {(Expression(7) - 2) * 3 % 4, "(7 - 2) * 3 % 4"},
      {Expression(7) - (Expression(2) - 3), "7 - (2 - 3)"},
      {Expression(8) / (Expression(2) * 3) == 1, "8 / (2 * 3) == 1"},
      {(nodes > 1) == spec.given("train"),
       "((has(self.nodes) ? self.nodes : 1) > 1) == has(self.train)"},
      {either(spec.given("train"), 1, 8) * 2, "(has(self.train) ? 1 : 8) * 2"},
      {spec.positive_or("gpusPerNode", 1),
       "has(self.gpusPerNode) && self.gpusPerNode > 0 ? self.gpusPerNode : 1"},
      {is_one_of(train["precision"], "fp32 bf16"),
       "(has(self.precision) ? self.precision : 'fp32') in ['fp32', 'bf16']"},
      {spec.contains("command", "a"), "has(self.command) && 'a' in self.command"},
      {spec.is_default("checkpoint.atEnd"),
       "has(self.checkpoint) && has(self.checkpoint.atEnd) ? self.checkpoint.atEnd : true"}};
  for (const auto& [expression, text] : cases) EXPECT_EQ(expression.cel(), text);
}

TEST(Expression, EvaluatesAFieldThatIsAbsentAsItsDefault) {
  const Scope spec("spec");
  const Json none = Json::object();
  const Json some = {{"nodes", 4}, {"gpusPerNode", 2}, {"command", {"a", "b"}}, {"image", ""}};
  EXPECT_EQ(spec["nodes"].value(none), 1);
  EXPECT_EQ(spec["nodes"].value(some), 4);
  EXPECT_EQ(spec["rendezvous.port"].value(some), 29500);
  EXPECT_EQ(spec["successPolicy"].value(none), "AllRanks");
  EXPECT_EQ(spec.positive_or("gpusPerNode", 7).value(none), 7);
  EXPECT_EQ(spec.positive_or("gpusPerNode", 7).value(some), 2);
  EXPECT_EQ(spec.first("command").value(some), "a");
  EXPECT_EQ(spec.first("command").value(none), "");
  EXPECT_EQ((spec["nodes"] % spec["processesPerNode"]).value(none), 0) << "no division by 0";
  EXPECT_TRUE(spec.given("command").holds(some));
  EXPECT_FALSE(spec.given("command").holds(none));
  EXPECT_FALSE(spec.given("image").holds(some));
  EXPECT_TRUE(spec.contains("command", "b").holds(some));
  EXPECT_FALSE(spec.contains("command", "c").holds(some));
  EXPECT_TRUE(spec.is_default("checkpoint.atEnd").holds(none));
  EXPECT_TRUE((spec["nodes"] == 1 && spec["successPolicy"] != "RankZero").holds(none));
  const std::vector<std::string> reads = {"nodes", "gpusPerNode"};
  EXPECT_EQ((spec["nodes"] + spec["gpusPerNode"] <= 3).reads(), reads);
}

TEST(Pattern, MatchesWhatItsRegularExpressionMatches) {
  constexpr char kCharacters[] = {'a', 'z', 'Z', '0', '5', '-', '/', 's', '\n'};
  std::vector<std::string> texts = {"", "llama-3.2-1b", "llama", "xllama-", "1000000m", "a/b/c"};
  for (size_t i = 0; texts.size() < 8000; ++i) {
    for (const char c : kCharacters) texts.push_back(texts[i] + c);
  }
  for (const Pattern& pattern : {kLabel, kDomainPath, kDuration, kLlamaPreset}) {
    const std::regex regex(std::string(pattern.regex));
    int matched = 0;
    for (const std::string& text : texts) {
      EXPECT_EQ(pattern.matches(text), std::regex_search(text, regex))
          << pattern.regex << ": " << text;
      if (pattern.matches(text)) ++matched;
    }
    EXPECT_GT(matched, 0) << pattern.regex;
    EXPECT_FALSE(pattern.matches("")) << pattern.regex;
  }
}

}  // namespace
}  // namespace lockstep
