#include "common/base/json.h"

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

constexpr std::string_view kLeftOut = "(left out: ";

// Builds the document event by event, so that limits apply before memory is allocated.
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

 protected:
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

  virtual bool add(Json value) {
    if (++values_ > limits_.values_max) return fail(too_many(limits_.values_max));
    place(std::move(value));
    return true;
  }

  virtual bool open(Json container) {
    if (static_cast<int>(stack_.size()) >= limits_.depth_max)
      return fail(too_deep(limits_.depth_max));
    if (++values_ > limits_.values_max) return fail(too_many(limits_.values_max));
    stack_.push_back(place(std::move(container)));
    return true;
  }

  virtual bool close() {
    stack_.pop_back();
    return true;
  }

  static std::string too_many(size_t values_max) {
    return "more than " + std::to_string(values_max) + " values";
  }
  static std::string too_deep(int depth_max) {
    return "nested deeper than " + std::to_string(depth_max) + " levels";
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Json*>
      stack_;  // open containers; the pointers stay valid because only the innermost one grows
  std::string key_;
  std::string error_;
  size_t values_ = 0;
};

// Applies the limits of ObjectLimits. The stack holds, from index `objects_at` on: the object, its
// part, and the part's member.
class ObjectsReader final : public BoundedReader {
 public:
  explicit ObjectsReader(const ObjectLimits& limits)
      : BoundedReader(
            {.depth_max = limits.objects_at + limits.depth_max, .values_max = limits.values_max}),
        objects_(limits),
        part_(static_cast<size_t>(limits.objects_at) + 1) {}

  bool key(string_t& value) override { return skipped_ > 0 || BoundedReader::key(value); }

 private:
  bool add(Json value) override {
    if (skipped_ > 0 || is_dropped()) return true;
    if (!is_full()) return count() && BoundedReader::add(std::move(value));
    leave_out(too_many(objects_.part_values_max));
    return true;
  }

  bool open(Json container) override {
    if (skipped_ == 0 && !is_dropped()) {
      if (stack_.size() == part_) is_in_metadata_ = key_ == "metadata";
      const bool is_too_deep = static_cast<int>(stack_.size()) >= limits_.depth_max;
      if (!is_too_deep && !is_full()) return count() && BoundedReader::open(std::move(container));
      leave_out(is_too_deep ? too_deep(objects_.depth_max) : too_many(objects_.part_values_max));
    }
    ++skipped_;
    return true;
  }

  bool close() override {
    if (skipped_ == 0) return BoundedReader::close();
    --skipped_;
    return true;
  }

  bool is_dropped() const {
    return is_in_metadata_ && stack_.size() == part_ + 1 && !objects_.dropped.empty() &&
           key_ == objects_.dropped;
  }

  // A full part still accepts its direct members, up to its limit: names and versions are among
  // them.
  bool is_full() const {
    if (stack_.size() == part_ + 1) return members_ >= objects_.part_values_max;
    return stack_.size() > part_ + 1 && within_ >= objects_.part_values_max;
  }

  // Always returns true, so that it can be used in a condition.
  bool count() {
    if (stack_.size() == part_) members_ = within_ = 0;
    if (stack_.size() == part_ + 1) {
      ++members_;
      member_begin_ = within_;
    }
    if (stack_.size() > part_ + 1) ++within_;
    return true;
  }

  // Replaces the open member of the part (or the part itself) by the reason, and skips the rest of
  // it.
  void leave_out(const std::string& why) {
    const size_t at = std::min(stack_.size() - 1, part_ + 1);
    skipped_ = stack_.size() - at;
    *stack_[at] = std::string(kLeftOut) + why + ")";
    stack_.resize(at);
    values_ -= at > part_ ? within_ - member_begin_ : within_ + members_;
    within_ = at > part_ ? member_begin_ : 0;
  }

  const ObjectLimits objects_;
  const size_t part_;            // stack depth of a part
  size_t members_ = 0;           // direct members of the open part
  size_t within_ = 0;            // values inside these members
  size_t member_begin_ = 0;      // within_ when the last member began
  size_t skipped_ = 0;           // open containers that are being skipped
  bool is_in_metadata_ = false;  // the open part, if there is one, is the metadata
};

Result<Json> parse_with(BoundedReader& reader, std::string_view text, size_t bytes_max) {
  if (text.size() > bytes_max) {
    return invalid("JSON of " + std::to_string(text.size()) +
                   " bytes is larger than the limit of " + std::to_string(bytes_max));
  }
  if (!Json::sax_parse(text.begin(), text.end(), &reader)) return invalid(reader.error());
  return reader.take();
}

Error missing(std::string_view key, std::string_view type, const Json* found) {
  const std::string came = found == nullptr ? "nothing" : std::string(found->type_name());
  return invalid(std::string(key) + ": expected " + std::string(type) + ", found " + came);
}

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  BoundedReader reader(limits);
  return parse_with(reader, text, limits.bytes_max);
}

Result<Json> parse_json_objects(std::string_view text, const ObjectLimits& limits) {
  ObjectsReader reader(limits);
  return parse_with(reader, text, limits.bytes_max);
}

std::string left_out(const Json& value) {
  const auto* text = value.get_ptr<const std::string*>();
  if (text == nullptr || !text->starts_with(kLeftOut) || !text->ends_with(')')) return "";
  return text->substr(kLeftOut.size(), text->size() - kLeftOut.size() - 1);
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
    return invalid(std::string(key) + ": " + member->dump() + " does not fit in 64 bits");
  }
  return member->get<int64_t>();
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
