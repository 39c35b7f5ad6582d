#include "tests/fuzz/server/mutator.h"

#include <algorithm>
#include <iterator>

#include "common/base/check.h"

// libFuzzer's own mutation of bytes; returns the new size.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

namespace lockstep::fuzz {
namespace {

constexpr int64_t kNumbers[] = {
    0, 1, -1, 2, 30, 65536, 2147483647, 4294967296, INT64_MAX, INT64_MIN, 9999999, 1000000000000};
constexpr double kFractions[] = {0.5, -0.0, 1e308, 5e-324, 1e18, 1.0};
// Bodies that are JSON, but not proper objects.
constexpr const char* kOtherShapes[] = {"[]", "null", "0", "\"\"", "[{}]", "{}", R"({"spec": []})"};
constexpr size_t kBytesAdded = 32;

constexpr char kJson[] = "application/json";
constexpr char kJsonPatch[] = "application/json-patch+json";
constexpr char kApply[] = "application/apply-patch+yaml";
constexpr char kProtobuf[] = "application/vnd.kubernetes.protobuf";

// The parts of a target between slashes, and its query with the question mark.
struct Target {
  explicit Target(const std::string& text) {
    const size_t end = std::min(text.find('?'), text.size());
    query = text.substr(end);
    for (size_t from = 0; from < end;) {
      const size_t to = std::min(text.find('/', from + 1), end);
      parts.push_back(text.substr(from, to - from));
      from = to;
    }
  }
  std::string text() const {
    std::string joined;
    for (const std::string& part : parts) joined += part;
    return joined + query;
  }

  std::vector<std::string> parts;  // each with its slash
  std::string query;
};

void add_option(std::string& target, const std::string& option) {
  target += (target.find('?') == std::string::npos ? "?" : "&") + option;
}

}  // namespace

void Mutator::change(std::vector<RequestText>& requests) {
  for (uint64_t times = 1 + random_.below(3); times > 0; --times) {
    if (requests.empty()) requests.push_back(new_request());
    RequestText& request = requests[random_.below(requests.size())];
    switch (random_.below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        change_sequence(requests);
        break;
      case 4:
        request.method = of(words::methods());
        break;
      case 5:
      case 6:
        change_target(request);
        break;
      case 7:
        if (one_in(2)) {
          request.set_header("Content-Type", of(words::content_types()));
        } else {
          request.set_header("Accept", one_in(3) ? "" : of(words::accepted()));
        }
        break;
      case 8:
        change_bytes(one_in(2) || request.headers.empty() ? request.target : request.headers[0]);
        break;
      case 9:
        change_bytes(request.body);
        break;
      default:
        change_body(request);
    }
  }
}

void Mutator::change_sequence(std::vector<RequestText>& requests) {
  const auto place = [&](size_t room) {
    return requests.begin() + static_cast<ptrdiff_t>(random_.below(requests.size() + room));
  };
  const bool full = requests.size() >= kRequestsMax;
  switch (random_.below(6)) {
    case 0:
      if (requests.size() > 1) requests.erase(place(0));
      break;
    case 1:
      if (!full) {
        RequestText copy = *place(0);
        requests.insert(place(1), std::move(copy));
      }
      break;
    case 2:
      std::swap(*place(0), *place(0));
      break;
    default:
      if (full) {
        *place(0) = new_request();
      } else {
        requests.insert(place(1), new_request());
      }
  }
}

std::vector<RequestText> Mutator::cross(std::vector<RequestText> a,
                                        const std::vector<RequestText>& b) {
  a.resize(random_.below(a.size() + 1));
  const size_t from = random_.below(b.size() + 1);
  a.insert(a.end(), b.begin() + static_cast<ptrdiff_t>(from), b.end());
  if (a.size() > kRequestsMax) a.resize(kRequestsMax);
  return a;
}

RequestText Mutator::new_request() {
  const FuzzKind& kind = of(fuzz_kinds());
  RequestText request;
  request.method = of(words::methods());
  const bool names_object = request.method != "POST" && !one_in(6);
  request.target = one_in(24) ? of(words::odd_paths()) : new_target(kind, names_object);
  if (one_in(3)) request.target += new_query();
  if (one_in(6)) request.set_header("Accept", of(words::accepted()));
  fill_body(kind, request);
  return request;
}

std::string Mutator::new_target(const FuzzKind& kind, bool names_object) {
  std::string text = kind.prefix;
  // Mostly an object that exists: `a` of namespace default.
  if (kind.namespaced && !one_in(12))
    text += "/namespaces/" + (one_in(3) ? of(words::namespaces()) : "default");
  text += "/" + std::string(kind.plural);
  const bool defines = std::string_view(kind.kind) == "CustomResourceDefinition";
  if (names_object)
    text += "/" + (defines && !one_in(8) ? "things.a.b" : one_in(2) ? of(words::names()) : "a");
  if (names_object && one_in(3))
    text += "/" + (one_in(6) ? of(words::subresources()) : of(kind.subresources()));
  return text;
}

std::string Mutator::new_query() {
  std::string text;
  for (uint64_t i = 1 + random_.below(3); i > 0; --i) add_option(text, of(words::options()));
  return text;
}

void Mutator::change_target(RequestText& request) {
  Target target(request.target);
  switch (random_.below(6)) {
    case 0:
      target.parts = Target(new_target(of(fuzz_kinds()), !one_in(4))).parts;
      break;
    case 1:
      target.query = one_in(3) ? "" : new_query();
      break;
    case 2:
      add_option(target.query, of(words::options()));
      break;
    case 3:
      if (!target.parts.empty() && one_in(2)) target.parts.pop_back();
      break;
    case 4:
      target.parts.push_back("/" + of(one_in(3) ? words::names() : words::subresources()));
      break;
    default:
      for (std::string& part : target.parts)
        if (one_in(target.parts.size())) part = "/" + of(words::names());
  }
  request.target = target.text();
}

Json Mutator::new_document(const FuzzKind& kind) {
  const Result<Json> parsed = parse_json(kind.object);
  CHECK(parsed.ok());
  Json object = *parsed;
  object["kind"] = kind.kind;
  object["apiVersion"] = kind.api_version();
  if (!object["metadata"].contains("name"))
    object["metadata"][one_in(12) ? "generateName" : "name"] = of(words::names());
  for (uint64_t times = random_.below(4); times > 0; --times) edit(object);
  return object;
}

void Mutator::fill_body(const FuzzKind& kind, RequestText& request) {
  if (request.method == "GET") return;
  request.set_header("Content-Type", kJson);
  const bool small = request.method == "DELETE" || request.target.ends_with("/scale") ||
                     request.target.ends_with("/binding") || request.target.ends_with("/eviction");
  if (one_in(24)) {
    request.set_header("Content-Type", kProtobuf);
    request.body = std::string("k8s\0\n", 5) + request.body;
    change_bytes(request.body);
  } else if (request.method == "PATCH") {
    fill_patch(kind, request);
  } else if (small ? !one_in(4) : one_in(16)) {
    request.body = of(words::small_bodies());
  } else {
    if (one_in(12)) request.set_header("Content-Type", "application/yaml");
    request.body = dump_json(one_in(24) ? new_value(3) : new_document(kind));
  }
}

void Mutator::fill_patch(const FuzzKind& kind, RequestText& request) {
  std::string type = of(words::content_types());
  if (type.find("patch") == std::string::npos) type = kApply;
  request.set_header("Content-Type", type);
  Json patch = Json::object();
  if (type == kJsonPatch) {
    patch = Json::array();
    for (uint64_t i = 1 + random_.below(3); i > 0; --i) patch.push_back(new_patch_operation());
  } else if (type == kApply) {
    add_option(request.target, one_in(2) ? "fieldManager=m" : "fieldManager=n");
    patch = new_document(kind);
  } else if (one_in(2)) {
    patch = new_document(kind);
  } else {
    for (uint64_t times = 1 + random_.below(4); times > 0; --times) edit(patch);
  }
  request.body = dump_json(patch);
}

void Mutator::change_body(RequestText& request) {
  if (one_in(6)) {
    request.body = of(kOtherShapes);
    return;
  }
  Result<Json> body = parse_json(request.body);
  if (!body.ok() || one_in(16)) {
    if (one_in(2)) {
      request.body = of(words::small_bodies());
    } else {
      fill_body(of(fuzz_kinds()), request);
    }
    return;
  }
  Json document = *std::move(body);
  if (document.is_array() && one_in(2) && request.header("Content-Type") == kJsonPatch)
    document.push_back(new_patch_operation());
  else
    edit(document);
  request.body = dump_json(document);
}

void Mutator::change_bytes(std::string& text) {
  const size_t size = text.size();
  text.resize(size + kBytesAdded);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, text.size()));
}

Json Mutator::new_value(int depth) {
  switch (random_.below(depth > 0 ? 14 : 8)) {
    case 0:
    case 1:
    case 2:
      return of(words::texts());
    case 3:
      return of(kNumbers);
    case 4:
      return one_in(2);
    case 5:
      return nullptr;
    case 6:
      return one_in(2) ? Json(of(kFractions)) : Json(UINT64_MAX);
    case 7:
      return std::string(random_.below(8) * 40, 'x');
    case 8:
    case 9: {
      Json list = Json::array();
      for (uint64_t i = random_.below(4); i > 0; --i) list.push_back(new_value(depth - 1));
      return list;
    }
    default: {
      Json object = Json::object();
      for (uint64_t i = random_.below(5); i > 0; --i)
        object[of(words::keys())] = new_value(depth - 1);
      return object;
    }
  }
}

Json Mutator::new_patch_operation() {
  constexpr const char* kOperations[] = {"add", "remove", "replace", "move", "copy", "test", "x"};
  const auto pointer = [&] {
    std::string text;
    for (uint64_t down = 1 + random_.below(4); down > 0; --down) text += "/" + of(words::keys());
    return text;
  };
  Json operation = {{"op", of(kOperations)}, {"path", pointer()}, {"value", new_value(2)}};
  if (one_in(2)) operation["from"] = pointer();
  return operation;
}

void Mutator::edit(Json& document) {
  Json* at = &document;
  for (uint64_t down = random_.below(8); down > 0 && at->is_structured() && !at->empty(); --down)
    at = &*std::next(at->begin(), static_cast<ptrdiff_t>(random_.below(at->size())));
  if (at->is_structured() && !at->empty() && one_in(4)) {
    at->erase(std::next(at->begin(), static_cast<ptrdiff_t>(random_.below(at->size()))));
  } else if (at->is_object() && !one_in(8)) {
    (*at)[of(words::keys())] = new_value(3);
  } else if (at->is_array() && !one_in(4)) {
    at->push_back(at->empty() || one_in(2) ? new_value(3) : Json((*at)[0]));
  } else {
    *at = new_value(3);
  }
}

}  // namespace lockstep::fuzz

using lockstep::fuzz::Mutator;
using lockstep::fuzz::RequestText;

namespace {

// Writes as many of the requests as fit.
size_t write_requests(std::vector<RequestText> requests, uint8_t* out, size_t size_max) {
  std::string text = join_requests(requests);
  for (; text.size() > size_max; text = join_requests(requests)) requests.pop_back();
  std::copy(text.begin(), text.end(), out);
  return text.size();
}

std::vector<RequestText> read_requests(const uint8_t* data, size_t size) {
  return lockstep::fuzz::split_requests({reinterpret_cast<const char*>(data), size},
                                        Mutator::kRequestsMax);
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  lockstep::Random random(seed);
  std::vector<RequestText> requests = read_requests(data, size);
  Mutator(random).change(requests);
  return write_requests(std::move(requests), data, size_max);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,
                                            const uint8_t* data2, size_t size2, uint8_t* out,
                                            size_t size_max, unsigned seed) {
  lockstep::Random random(seed);
  return write_requests(
      Mutator(random).cross(read_requests(data1, size1), read_requests(data2, size2)), out,
      size_max);
}
