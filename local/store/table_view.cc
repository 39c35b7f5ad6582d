#include "local/store/table_view.h"

#include <optional>
#include <vector>

#include "local/store/storage.h"

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

using Form = View::Form;

// Parses a clause such as "application/json;as=Table;v=v1;g=meta.k8s.io".
std::optional<Form> form_of(std::string_view clause) {
  std::string_view type = next_part(clause, ';');
  if (type != "application/json" && type != "application/*" && type != "*/*") return std::nullopt;
  std::string_view as, group, version;
  while (!clause.empty()) {
    std::string_view parameter = next_part(clause, ';');
    if (parameter.starts_with("as=")) as = parameter.substr(3);
    if (parameter.starts_with("g=")) group = parameter.substr(2);
    if (parameter.starts_with("v=")) version = parameter.substr(2);
  }
  if (as.empty()) return Form::kWhole;
  if (group != "meta.k8s.io" || version != "v1") return std::nullopt;
  if (as == "Table") return Form::kTable;
  if (as == "PartialObjectMetadata" || as == "PartialObjectMetadataList") return Form::kMetadata;
  return std::nullopt;
}

bool is_list(const ResourceType& type, const Json& answer) {
  const Json* items = find_member(answer, "items");
  return items != nullptr && items->is_array() && string_or(answer, "kind", "") == type.list_name();
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
  if (is_list(type, answer)) {
    for (const Json& item : answer["items"]) objects.push_back(&item);
  } else {
    objects.push_back(&answer);
  }
  Json table = make_table(request, objects);
  if (const Json* remaining = find_member(metadata, "remainingItemCount"))
    table["metadata"]["remainingItemCount"] = *remaining;
  return table;
}

Json metadata_alone(const Json& object) {
  return {{"kind", "PartialObjectMetadata"},
          {"apiVersion", "meta.k8s.io/v1"},
          {"metadata", metadata_of(object)}};
}

Json metadata_alone_of(const ResourceType& type, const Json& answer) {
  if (!is_list(type, answer)) return metadata_alone(answer);
  Json items = Json::array();
  for (const Json& item : answer["items"]) items.push_back(metadata_alone(item));
  return {{"kind", "PartialObjectMetadataList"},
          {"apiVersion", "meta.k8s.io/v1"},
          {"metadata", metadata_of(answer)},
          {"items", std::move(items)}};
}

}  // namespace

bool is_acceptable(std::string_view accept) {
  if (accept.empty()) return true;
  while (!accept.empty()) {
    if (form_of(next_part(accept, ','))) return true;
  }
  return false;
}

Result<View> wanted_view(std::string_view accept, const ApiPath& path) {
  std::optional<Form> form;
  while (!accept.empty() && !form) form = form_of(next_part(accept, ','));
  if (form != Form::kTable) return View{.form = form.value_or(Form::kWhole)};
  std::string include = path.parameter("includeObject");
  if (include.empty() || include == "Metadata") return View{Form::kTable, TableRows::kMetadata};
  if (include == "None") return View{Form::kTable, TableRows::kNone};
  if (include == "Object") return View{Form::kTable, TableRows::kObject};
  return invalid("includeObject: expected Metadata, None or Object, found \"" + include + "\"");
}

Json in_view(const ResourceType& type, Json answer, const View& view, bool with_headers,
             WallTime now) {
  switch (view.form) {
    case Form::kTable:
      return table_of(type, answer, view.rows, with_headers, now);
    case Form::kMetadata:
      return metadata_alone_of(type, answer);
    case Form::kWhole:
      break;
  }
  return answer;
}

}  // namespace lockstep::local
