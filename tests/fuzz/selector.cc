// A label selector, a field selector and an object, one per line. A selector is the conjunction of
// its terms, spaces around it have no effect, and a negated term selects what the term does not.
#include "local/store/selector.h"

#include <string>

#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace lockstep::local;

namespace {

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

void check_negation(const local::ResourceType& type, const std::string& labels, bool matches,
                    const Json& object) {
  if (labels.find_first_of("!=<>(, ") != std::string::npos) return;
  // Only the name of a label: the label exists.
  const Result<local::Selector> absent = local::Selector::parse(type, "!" + labels, "");
  CHECK(absent.ok() && absent->matches(object) != matches);
  const Result<local::Selector> listed = local::Selector::parse(type, labels + " in (a,b)", "");
  const Result<local::Selector> others = local::Selector::parse(type, labels + " notin (a,b)", "");
  CHECK(listed.ok() && others.ok() && listed->matches(object) != others->matches(object));
}

void check_type(const local::ResourceType& type, const std::string& labels,
                const std::string& fields, const Json& object) {
  const Result<local::Selector> by_labels = local::Selector::parse(type, labels, "");
  const Result<local::Selector> by_fields = local::Selector::parse(type, "", fields);
  const Result<local::Selector> both = local::Selector::parse(type, labels, fields);
  for (const Result<local::Selector>* selector : {&by_labels, &by_fields, &both})
    CHECK(selector->ok() || !selector->error().message.empty());
  if (!by_labels.ok() || !by_fields.ok()) {
    CHECK(!both.ok());
    return;
  }
  const bool matches = by_labels->matches(object);
  const Result<local::Selector> spaced = local::Selector::parse(type, " " + labels + " ", "");
  CHECK(spaced.ok() && spaced->matches(object) == matches);
  if (both.ok()) CHECK(both->matches(object) == (matches && by_fields->matches(object)));
  if (!by_labels->selects_all()) check_negation(type, labels, matches, object);
  const Result<local::Selector> twice = local::Selector::parse(type, labels + "," + labels, "");
  if (!by_labels->selects_all() && twice.ok()) CHECK(twice->matches(object) == matches);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const local::TypeRegistry kTypes;
  std::string_view text = fuzz::fuzz_text(data, size);
  const std::string labels(take_line(text));
  const std::string fields(take_line(text));
  const Result<Json> object = parse_json(text);
  const Json none = Json::object();
  for (const char* plural : {"pods", "events"})
    check_type(*kTypes.find("", "v1", plural), labels, fields, object.ok() ? *object : none);
  return 0;
}
