#include "common/base/json.h"

#include <set>
#include <vector>

namespace lockstep {
namespace {

// Builds the document event by event, so that limits hold before memory is spent.
class BoundedReader : public nlohmann::json_sax<Json> {
 public:
  explicit BoundedReader(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return fail("binary values are not JSON"); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    if (stack_.back()->contains(value)) return fail("duplicate key \"" + value + "\"");
    key_ = std::move(value);
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    if (error_.empty()) error_ = "not valid JSON at byte " + std::to_string(position);
    return false;
  }

  const std::string& error() const { return error_; }
  Json take() { return std::move(root_); }

 private:
  bool fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  Json* place(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }

  bool add(Json value) {
    if (++values_ > limits_.values_max)
      return fail("more than " + std::to_string(limits_.values_max) + " values");
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (static_cast<int>(stack_.size()) >= limits_.depth_max)
      return fail("nested deeper than " + std::to_string(limits_.depth_max) + " levels");
    if (++values_ > limits_.values_max)
      return fail("more than " + std::to_string(limits_.values_max) + " values");
    stack_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    stack_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Json*> stack_;  // containers that are open; stable, as only the last one grows
  std::string key_;
  std::string error_;
  size_t values_ = 0;
};

Error missing(std::string_view key, std::string_view type, const Json* found) {
  const std::string came = found == nullptr ? "nothing" : std::string(found->type_name());
  return invalid(std::string(key) + ": expected " + std::string(type) + ", found " + came);
}

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return invalid("JSON of " + std::to_string(text.size()) +
                   " bytes is larger than the limit of " + std::to_string(limits.bytes_max));
  }
  BoundedReader reader(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &reader)) return invalid(reader.error());
  return reader.take();
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json* find_member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

Result<std::string> string_member(const Json& object, std::string_view key) {
  const Json* member = find_member(object, key);
  if (member == nullptr || !member->is_string()) return missing(key, "a string", member);
  return member->get<std::string>();
}

Result<int64_t> int_member(const Json& object, std::string_view key) {
  const Json* member = find_member(object, key);
  if (member == nullptr || !member->is_number_integer()) {
    return missing(key, "an integer", member);
  }
  if (member->is_number_unsigned() && member->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return invalid(std::string(key) + ": " + member->dump() + " is larger than 64 bits hold");
  }
  return member->get<int64_t>();
}

Result<double> number_member(const Json& object, std::string_view key) {
  const Json* member = find_member(object, key);
  if (member == nullptr || !member->is_number()) return missing(key, "a number", member);
  return member->get<double>();
}

std::string string_or(const Json& object, std::string_view key, std::string_view fallback) {
  const Json* member = find_member(object, key);
  return member != nullptr && member->is_string() ? member->get<std::string>()
                                                  : std::string(fallback);
}

int64_t int_or(const Json& object, std::string_view key, int64_t fallback) {
  const Result<int64_t> member = int_member(object, key);
  return member.ok() ? *member : fallback;
}

double number_or(const Json& object, std::string_view key, double fallback) {
  const Json* member = find_member(object, key);
  return member != nullptr && member->is_number() ? member->get<double>() : fallback;
}

bool bool_or(const Json& object, std::string_view key, bool fallback) {
  const Json* member = find_member(object, key);
  return member != nullptr && member->is_boolean() ? member->get<bool>() : fallback;
}

}  // namespace lockstep
