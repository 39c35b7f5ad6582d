#include "cli/local/store/table_view.h"

#include <vector>

#include "cli/local/store/storage.h"

namespace lockstep::local {
namespace {

std::string_view next_part(std::string_view& rest, char separator) {
  size_t end = rest.find(separator);
  std::string_view part = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  while (part.starts_with(' ')) part.remove_prefix(1);
  while (part.ends_with(' ')) part.remove_suffix(1);
  return part;
}

enum class Answer { kPlain, kTable, kUnknown };

// "application/json;as=Table;v=v1;g=meta.k8s.io"
Answer answer_to(std::string_view clause) {
  std::string_view type = next_part(clause, ';');
  if (type != "application/json" && type != "application/*" && type != "*/*")
    return Answer::kUnknown;
  std::string_view as, group, version;
  while (!clause.empty()) {
    std::string_view parameter = next_part(clause, ';');
    if (parameter.starts_with("as=")) as = parameter.substr(3);
    if (parameter.starts_with("g=")) group = parameter.substr(2);
    if (parameter.starts_with("v=")) version = parameter.substr(2);
  }
  if (as.empty()) return Answer::kPlain;
  bool known = as == "Table" && group == "meta.k8s.io" && version == "v1";
  return known ? Answer::kTable : Answer::kUnknown;
}

}  // namespace

Result<std::optional<TableRows>> wanted_table(std::string_view accept, const ApiPath& path) {
  Answer answer = Answer::kUnknown;
  while (!accept.empty() && answer == Answer::kUnknown) answer = answer_to(next_part(accept, ','));
  if (answer != Answer::kTable) return std::optional<TableRows>();
  std::string include = path.parameter("includeObject");
  if (include.empty() || include == "Metadata") return std::optional(TableRows::kMetadata);
  if (include == "None") return std::optional(TableRows::kNone);
  if (include == "Object") return std::optional(TableRows::kObject);
  return invalid("includeObject: expected Metadata, None or Object, found \"" + include + "\"");
}

Json table_of(const ResourceType& type, const Json& answer, TableRows rows, bool with_headers,
              WallTime now) {
  const Json& metadata = metadata_of(answer);
  const std::string api_version = type.api_version();
  TableRequest request{.api_version = api_version,
                       .kind = type.kind,
                       .columns = &type.columns,
                       .rows = rows,
                       .with_headers = with_headers,
                       .resource_version = string_or(metadata, "resourceVersion", ""),
                       .continue_token = string_or(metadata, "continue", ""),
                       .now = now};
  std::vector<const Json*> objects;
  const Json* items = find_member(answer, "items");
  const bool is_list =
      items != nullptr && items->is_array() && string_or(answer, "kind", "") == type.list_name();
  if (!is_list) objects.push_back(&answer);
  if (is_list) {
    for (const Json& item : *items) objects.push_back(&item);
  }
  Json table = make_table(request, objects);
  if (const Json* remaining = find_member(metadata, "remainingItemCount"))
    table["metadata"]["remainingItemCount"] = *remaining;
  return table;
}

}  // namespace lockstep::local
