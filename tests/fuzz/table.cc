// A JSONPath and a document, one per line. Everything the path finds is part of the document, and
// any object can be a row of a Table.
#include "local/table/table.h"

#include "common/base/check.h"
#include "local/table/json_path.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace lockstep::local;

namespace {

struct Kind {
  const char* api_version;
  const char* kind;
};
constexpr Kind kKinds[] = {
    {"v1", "Pod"},       {"v1", "Node"},
    {"v1", "Event"},     {"v1", "Namespace"},
    {"v1", "Secret"},    {"v1", "ConfigMap"},
    {"v1", "Service"},   {"coordination.k8s.io/v1", "Lease"},
    {"a.b/v1", "Thing"}, {"apiextensions.k8s.io/v1", "CustomResourceDefinition"}};

void check_table(const Kind& kind, const std::vector<local::TableColumn>* columns,
                 const Json& object) {
  for (const local::TableRows rows :
       {local::TableRows::kMetadata, local::TableRows::kNone, local::TableRows::kObject}) {
    const Json table = local::make_table({.api_version = kind.api_version,
                                          .kind = kind.kind,
                                          .columns = columns,
                                          .rows = rows,
                                          .now = WallTime(std::chrono::seconds(1'600'000'000))},
                                         {&object});
    CHECK(table["rows"].size() == 1);
    CHECK(table["rows"][0]["cells"].size() == table["columnDefinitions"].size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::fuzz_text(data, size);
  const size_t line = std::min(text.find('\n'), text.size());
  const std::string path_text(text.substr(0, line));
  const Result<local::JsonPath> path = local::JsonPath::parse(path_text);
  CHECK(path.ok() || !path.error().message.empty());
  const Result<Json> document = parse_json(text.substr(std::min(line + 1, size)));
  if (!document.ok()) return 0;
  if (path.ok()) {
    CHECK(path->find(*document, 10).size() <= 10);
    for (const Json* found : path->find(*document)) (void)dump_json(*found);
  }
  if (!document->is_object()) return 0;
  std::vector<local::TableColumn> columns;
  for (const char* type : {"string", "integer", "number", "boolean", "date"})
    columns.push_back({.name = type, .type = type, .json_path = path_text});
  for (const Kind& kind : kKinds)
    check_table(kind, kind.kind == std::string_view("Thing") ? &columns : nullptr, *document);
  return 0;
}
