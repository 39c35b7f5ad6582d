#include "local/store/request.h"

#include <charconv>
#include <vector>

namespace lockstep::local {
namespace {

constexpr size_t kTargetBytesMax = 8 * 1024;

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Result<std::string> decoded(std::string_view text, bool plus_is_space) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      plain += ' ';
    } else if (text[i] != '%') {
      plain += text[i];
    } else {
      int high = i + 2 < text.size() ? digit(text[i + 1]) : -1;
      int low = i + 2 < text.size() ? digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return invalid("invalid URL escape in the request's target");
      plain += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return plain;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// `parts`: the path after the version.
void name_object(const TypeRegistry& types, ApiPath& path, const std::vector<std::string>& parts,
                 std::string_view group, std::string_view version) {
  size_t at = 0;
  if (parts.size() >= 3 && parts[0] == "namespaces" &&
      types.find(group, version, parts[2]) != nullptr) {
    path.namespace_ = parts[1];
    at = 2;
  }
  if (at >= parts.size() || parts.size() - at > 3) return;
  const ResourceType* type = types.find(group, version, parts[at]);
  bool named = parts.size() > at + 1;
  if (type == nullptr || (!type->namespaced && at > 0)) return;
  if (type->namespaced && named && at == 0) return;
  path.type = type;
  if (named) path.name = parts[at + 1];
  if (parts.size() > at + 2) path.subresource = parts[at + 2];
}

}  // namespace

std::string ApiPath::parameter(const std::string& key) const {
  auto found = query.find(key);
  return found == query.end() ? "" : found->second;
}

bool ApiPath::flag(const std::string& key) const {
  std::string text = parameter(key);
  return text == "true" || text == "1";
}

Result<std::optional<int64_t>> ApiPath::number(const std::string& key) const {
  std::string text = parameter(key);
  if (text.empty()) return std::optional<int64_t>();
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    return invalid("invalid " + key + ": " + text);
  return std::optional<int64_t>(value);
}

Result<ApiPath> parse_target(const TypeRegistry& types, std::string_view target) {
  if (target.size() > kTargetBytesMax) return invalid("the request's target is too long");
  ApiPath path;
  size_t question = std::min(target.find('?'), target.size());
  std::vector<std::string> parts;
  for (std::string_view part : split(target.substr(0, question), '/')) {
    TRY_ASSIGN(std::string plain, decoded(part, false));
    path.path.push_back('/');
    path.path.append(plain);
    parts.push_back(std::move(plain));
  }
  if (path.path.empty()) path.path.push_back('/');
  for (std::string_view pair : split(target.substr(std::min(question + 1, target.size())), '&')) {
    size_t equals = std::min(pair.find('='), pair.size());
    TRY_ASSIGN(std::string key, decoded(pair.substr(0, equals), true));
    TRY_ASSIGN(std::string value, decoded(pair.substr(std::min(equals + 1, pair.size())), true));
    path.query[std::move(key)] = std::move(value);
  }
  if (parts.size() >= 3 && parts[0] == "api") {
    name_object(types, path, {parts.begin() + 2, parts.end()}, "", parts[1]);
  } else if (parts.size() >= 4 && parts[0] == "apis") {
    name_object(types, path, {parts.begin() + 3, parts.end()}, parts[1], parts[2]);
  }
  return path;
}

}  // namespace lockstep::local
