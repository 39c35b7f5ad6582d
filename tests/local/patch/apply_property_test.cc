#include <map>

#include "common/base/random.h"
#include "local/patch/field_set.h"
#include "local/patch/field_walk.h"
#include "tests/local/patch/apply_fixture.h"

namespace lockstep::local {
namespace {

constexpr int kRuns = 50;
constexpr int kSteps = 25;

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}

  bool often() { return random_.below(3) != 0; }
  bool seldom() { return random_.below(4) == 0; }
  int below(int limit) { return static_cast<int>(random_.below(static_cast<uint64_t>(limit))); }
  std::string word() { return std::string(1, static_cast<char>('a' + below(3))); }

  // Returns a random spec with any of the fixture's fields.
  Json spec() {
    Json spec = Json::object();
    if (often()) spec["size"] = word();
    if (seldom()) spec["color"] = word();
    for (const char* name : {"x", "y"}) {
      if (seldom()) spec["part"][name] = below(3);
    }
    if (seldom()) spec["box"] = {{word(), below(3)}};
    while (seldom()) spec["map"][word()] = word();
    if (seldom()) spec["any"][word()] = often() ? Json(word()) : Json({{word(), below(3)}});
    if (seldom()) spec["list"] = {word()};
    for (const char* value : {"a", "b", "c"}) {
      if (seldom()) spec["set"].push_back(value);
    }
    for (int port = 1; port < 4; ++port) {
      if (!seldom()) continue;
      Json element = {{"port", port}};
      if (often()) element["name"] = word();
      spec["ports"].push_back(element);
    }
    return spec;
  }

 private:
  Random random_;
};

// Checks that every field of an entry exists in the object.
void expect_owned_fields_exist(const Written& written) {
  const SchemaNode schema = widget_schema();
  const Shape shape = Shape::of_object(schema);
  const Json existing =
      compare_fields(shape, Json({{"metadata", Json::object()}}), *written.object).added;
  for (const Json& entry : written.entries()) {
    Json missing = entry["fieldsV1"];
    subtract(missing, existing);
    EXPECT_EQ(missing, Json::object()) << dump_json(*written.object);
  }
}

void step(Written& written, Dice& dice) {
  const std::string manager(1, static_cast<char>('p' + dice.below(3)));
  if (dice.often() && written.object) {
    Json next = *written.object;
    next["spec"] = dice.spec();
    written.update(manager, next);
  } else {
    (void)written.apply(manager, dump_json(dice.spec()), dice.often());
  }
}

TEST(ApplyProperties, NoFieldIsOwnedThatDoesNotExist) {
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Written written;
    Dice dice(seed);
    for (int i = 0; i < kSteps && !testing::Test::HasFailure(); ++i) {
      step(written, dice);
      if (written.object) expect_owned_fields_exist(written);
    }
  }
}

TEST(ApplyProperties, AnIntentHoldsAfterItWentThrough) {
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Written written;
    Dice dice(seed);
    for (int i = 0; i < kSteps && !testing::Test::HasFailure(); ++i) {
      step(written, dice);
      const Json intent = Written::widget(dice.spec());
      if (!written.apply_object("x", intent, dice.often()).empty()) continue;
      const Json merged = *written.object;
      const SchemaNode schema = widget_schema();
      EXPECT_EQ(merge_intent(Shape::of_object(schema), merged, intent), merged);
      EXPECT_EQ(written.apply_object("x", intent), "") << "no conflict with what it owns";
      EXPECT_EQ(*written.object, merged) << "once more changes nothing, times neither";
    }
  }
}

TEST(ApplyProperties, AnUpdateIsTakenAsItIs) {
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Written written;
    Dice dice(seed);
    for (int i = 0; i < kSteps; ++i) {
      step(written, dice);
      const Json spec = dice.spec();
      written.update_spec("u", dump_json(spec));
      EXPECT_EQ(written.spec(), spec);
    }
  }
}

TEST(ApplyProperties, ALaterIntentRemovesWhatTheManagerAloneOwned) {
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const Json first = dice.spec(), second = dice.spec(), other = dice.spec();
    Written alone, expected;
    EXPECT_EQ(alone.apply("a", dump_json(first)), "");
    EXPECT_EQ(alone.apply("a", dump_json(second)), "");
    EXPECT_EQ(expected.apply("a", dump_json(second)), "");
    EXPECT_EQ(alone.spec(), expected.spec()) << first << second;

    Written shared;
    EXPECT_EQ(shared.apply("a", dump_json(first)), "");
    EXPECT_EQ(shared.apply("b", dump_json(other), true), "");
    EXPECT_EQ(shared.apply("a", "{}"), "");
    Written others;
    EXPECT_EQ(others.apply("b", dump_json(other)), "");
    EXPECT_EQ(shared.fields("b", "Apply"), others.fields("b", "Apply"));
    const SchemaNode schema = widget_schema();
    EXPECT_EQ(merge_intent(Shape::of_object(schema), *shared.object, Written::widget(other)),
              *shared.object);
  }
}

TEST(ApplyProperties, TwoAppliersOfDifferentFieldsNeverMeet) {
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    Written written;
    for (int i = 0; i < kSteps; ++i) {
      EXPECT_EQ(written.apply("a", dump_json({{"map", {{"a", dice.word()}}}})), "");
      EXPECT_EQ(
          written.apply("b", dump_json({{"map", {{"b", dice.word()}}}, {"size", dice.word()}})),
          "");
    }
    EXPECT_EQ(written.spec()["map"].size(), 2u);
  }
}

TEST(FieldSetProperties, AreThoseOfSets) {
  const SchemaNode schema = widget_schema();
  const Shape shape = Shape::of_object(schema);
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const Json a = intended_fields(shape, Written::widget(dice.spec()));
    const Json b = intended_fields(shape, Written::widget(dice.spec()));
    Json both = a, both_back = b, only_a = a, none = a;
    merge_into(both, b);
    merge_into(both_back, a);
    EXPECT_EQ(both, both_back);
    subtract(only_a, b);
    subtract(none, a);
    EXPECT_EQ(none, Json::object());
    EXPECT_EQ(intersect(a, b), intersect(b, a));
    EXPECT_EQ(intersect(only_a, b), Json::object());
    Json again = only_a;
    merge_into(again, intersect(a, b));
    EXPECT_EQ(again, a) << "what is in one alone, and what is in both";
    EXPECT_EQ(*read_field_set(both), both);
    EXPECT_EQ(field_paths(both).size() + field_paths(intersect(a, b)).size(),
              field_paths(a).size() + field_paths(b).size());
  }
}

}  // namespace
}  // namespace lockstep::local
