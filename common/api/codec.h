#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/api/problems.h"
#include "common/base/json.h"

namespace lockstep {

// JSON codecs generated from one list of fields per struct:
//
//   template <>
//   struct Schema<Thing> {
//     template <class Visit>
//     static void visit(Visit&& visit) {
//       visit(Field{.name = "size", .meaning = "Size of the thing.", .minimum = 0}, &Thing::size);
//     }
//   };
//
// write_json, read_json, check_ranges and describe_fields (schema.h) all walk that list, so none of
// them can miss a field. Members may be:
// - bool, int64_t, double, std::string
// - an enum with enum_name() and enum_from_name()
// - a struct with a Schema
// - std::optional and std::vector of these
// - std::map of strings
// - Json (an object that is kept as it is)
//
// A struct with its own encoding has Schema::write and Schema::read instead of visit.
template <class T>
struct Schema;

// Other JSON readers lose digits of larger integers.
inline constexpr double kIntegerMax = 9007199254740992.0;  // 2^53
inline constexpr size_t kStringBytesMax = 4096;
inline constexpr size_t kListItemsMax = 100'000;

struct Field {
  std::string_view name;
  std::string_view meaning = {};  // for people; appears in docs/trainingjob.md and the CRD
  double minimum = -kIntegerMax;  // the default means no bound for a double
  double maximum = kIntegerMax;
  bool above_minimum = false;          // the minimum itself is excluded
  std::string_view choices = {};       // "a b c": a string's allowed values, and an empty default
  bool required = false;               // must be in the document
  size_t bytes_max = kStringBytesMax;  // for a string
  size_t items_max = kListItemsMax;    // for a list
  std::string_view list_key = {};      // the field that identifies an item of a list
};

// A field of the API that this version refuses: visit.refused(RefusedField{...}).
struct RefusedField {
  std::string_view name;
  std::string_view type;  // as in the schema: object, array, integer, string
  std::string_view meaning = {};
};

struct ReadRules {
  bool unknown_is_problem = true;
  bool wrong_type_is_problem = true;  // if false, the field keeps its default
};
inline constexpr ReadRules kReadStrictly{};
inline constexpr ReadRules kReadStored{.unknown_is_problem = false};
inline constexpr ReadRules kReadLeniently{.unknown_is_problem = false,
                                          .wrong_type_is_problem = false};

namespace codec {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

using StringMap = std::map<std::string, std::string>;

template <class T>
concept HasCustomCodec = requires(const T& value) {
  Schema<T>::write(value);
};

template <class T>
concept HasFieldList =
    std::is_class_v<T> && !HasCustomCodec<T> && !IsVector<T>::value && !IsOptional<T>::value &&
    !std::same_as<T, std::string> && !std::same_as<T, StringMap> && !std::same_as<T, Json>;

template <class T>
constexpr std::string_view expected_type() {
  if constexpr (std::same_as<T, bool>) return "true or false";
  if constexpr (std::same_as<T, int64_t>) return "an integer";
  if constexpr (std::same_as<T, double>) return "a number";
  if constexpr (std::same_as<T, std::string> || std::is_enum_v<T>) return "a string";
  if constexpr (IsVector<T>::value) return "a list";
  return "an object";
}

template <class T>
bool is_unset(const T& value) {
  if constexpr (IsOptional<T>::value) {
    return !value.has_value();
  } else if constexpr (std::same_as<T, double>) {
    return !std::isfinite(value);
  } else if constexpr (std::same_as<T, std::string> || std::same_as<T, StringMap> ||
                       std::same_as<T, Json> || IsVector<T>::value) {
    return value.empty();
  } else {
    return false;
  }
}

}  // namespace codec

template <class T>
Json write_json(const T& value);

namespace codec {

template <class S>
const S& defaults_of() {
  static const S defaults{};
  return defaults;
}

// The position of a value in its document: a linked list from the value to the root. The text is
// only built for a problem. Every parent must outlive the call that uses its children.
class Path {
 public:
  Path(std::string_view text) : text_(text) {}
  Path(const std::string& text) : text_(text) {}
  Path(const char* text) : text_(text) {}
  Path(const Path& parent, std::string_view key) : parent_(&parent), text_(key) {}
  Path(const Path& list, size_t index) : parent_(&list), index_(index) {}

  // Returns "spec.train.batch" or "spec.failure.rules[2]", as join_path() does.
  std::string text() const;

 private:
  const Path* parent_ = nullptr;
  std::string_view text_{};
  size_t index_ = SIZE_MAX;  // index in a list; SIZE_MAX: text_ is the key
};

// Leaves out unset values (an absent optional, an empty string or list, a number that is not
// finite) if reading the document gives the same value back.
template <class S>
struct Writer {
  const S& from;
  Json& to;
  const S& defaults = defaults_of<S>();

  template <class T>
  void operator()(const Field& field, T S::*member) {
    const T& value = from.*member;
    if constexpr (std::same_as<T, double>) {
      if (!std::isfinite(value)) return;
    } else if (is_unset(value) && value == defaults.*member) {
      return;
    }
    if constexpr (std::same_as<T, std::optional<double>>) {
      if (!std::isfinite(*value)) return;
    }
    to[std::string(field.name)] = write_json(value);
  }
  void refused(const RefusedField&) {}
};

}  // namespace codec

template <class T>
Json write_json(const T& value) {
  if constexpr (codec::HasCustomCodec<T>) {
    return Schema<T>::write(value);
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(enum_name(value));
  } else if constexpr (codec::IsOptional<T>::value) {
    return write_json(*value);
  } else if constexpr (codec::IsVector<T>::value) {
    Json list = Json::array();
    for (const auto& item : value) list.push_back(write_json(item));
    return list;
  } else if constexpr (codec::HasFieldList<T>) {
    Json object = Json::object();
    Schema<T>::visit(codec::Writer<T>{value, object});
    return object;
  } else {
    return value;
  }
}

// Reads `document` into `value`, which holds the defaults. Mistakes are added to `problems` and
// leave the default in place. `path` is the path of the value ("spec.train"; empty for the whole
// document).
template <class T>
void read_json(const Json& document, T& value, const codec::Path& path, const ReadRules& rules,
               Problems& problems);

namespace codec {

// Returns false if it is not a 64-bit integer. 1.0 and 1e3 are not, as for Kubernetes' own types.
bool read_integer(const Json& document, int64_t& value);

// Returns whether the document has the type of an optional value that is present.
template <class T>
bool has_type_of(const Json& document) {
  if constexpr (HasFieldList<T>) return document.is_object();
  if constexpr (std::same_as<T, double>) return document.is_number();
  int64_t value = 0;
  return read_integer(document, value);
}

template <class S>
struct Reader {
  const Json& from;
  S& to;
  const Path& path;
  const ReadRules& rules;
  Problems& problems;
  std::vector<std::string_view> known{};  // filled only if unknown fields are problems

  template <class T>
  void operator()(const Field& field, T S::*member) {
    if (rules.unknown_is_problem) known.push_back(field.name);
    const auto it = from.find(field.name);
    const Path at(path, field.name);
    if (it == from.end()) {
      if (field.required && rules.wrong_type_is_problem) {
        problems.push_back(missing_problem(at.text(), expected_type<T>()));
      }
      return;
    }
    if (IsVector<T>::value && it->is_array() && it->size() > field.items_max) {
      if (!rules.wrong_type_is_problem) return;
      problems.push_back(at.text() + ": " + std::to_string(it->size()) +
                         " items, expected at most " + std::to_string(field.items_max));
      return;
    }
    read_json(*it, to.*member, at, rules, problems);
  }
  void refused(const RefusedField& field) {
    if (rules.unknown_is_problem) known.push_back(field.name);
    if (from.contains(field.name)) {
      problems.push_back(Path(path, field.name).text() + ": not in this version");
    }
  }
};

template <class S>
void read_struct(const Json& document, S& value, const Path& path, const ReadRules& rules,
                 Problems& problems) {
  Reader<S> reader{document, value, path, rules, problems};
  Schema<S>::visit(reader);
  if (rules.unknown_is_problem) add_unknown_fields(document, path.text(), reader.known, problems);
}

template <class T>
void read_list(const Json& document, std::vector<T>& list, const Path& path, const ReadRules& rules,
               Problems& problems) {
  list.clear();
  list.reserve(document.size());
  for (size_t i = 0; i < document.size(); ++i) {
    if (!rules.wrong_type_is_problem && HasFieldList<T> && !document[i].is_object()) continue;
    list.emplace_back();
    read_json(document[i], list.back(), Path(path, i), rules, problems);
  }
}

}  // namespace codec

template <class T>
void read_json(const Json& document, T& value, const codec::Path& path, const ReadRules& rules,
               Problems& problems) {
  const auto wrong = [&](std::string_view expected) {
    if (rules.wrong_type_is_problem)
      problems.push_back(type_problem(path.text(), document, expected));
  };
  if constexpr (codec::HasCustomCodec<T>) {
    auto read = Schema<T>::read(document);
    if (read.ok()) {
      value = std::move(read).value();
    } else if (rules.wrong_type_is_problem) {
      const std::string text = path.text();
      problems.push_back((text.empty() ? text : text + ".") + read.error().message);
    }
  } else if constexpr (codec::IsOptional<T>::value) {
    using Inner = typename T::value_type;
    static_assert(codec::HasFieldList<Inner> || std::same_as<Inner, double> ||
                  std::same_as<Inner, int64_t>);
    Inner inner{};
    read_json(document, inner, path, rules, problems);
    if (codec::has_type_of<Inner>(document)) value = std::move(inner);
  } else if constexpr (codec::IsVector<T>::value) {
    if (!document.is_array()) return wrong("a list");
    codec::read_list(document, value, path, rules, problems);
  } else if constexpr (std::is_enum_v<T>) {
    if (!document.is_string()) return wrong("a string");
    if (!enum_from_name(document.get_ref<const std::string&>(), value)) wrong("a known name");
  } else if constexpr (std::same_as<T, bool>) {
    if (!document.is_boolean()) return wrong("true or false");
    value = document.get<bool>();
  } else if constexpr (std::same_as<T, int64_t>) {
    if (!codec::read_integer(document, value)) wrong("an integer");
  } else if constexpr (std::same_as<T, double>) {
    if (!document.is_number()) return wrong("a number");
    value = document.get<double>();
  } else if constexpr (std::same_as<T, std::string>) {
    if (!document.is_string()) return wrong("a string");
    value = document.get<std::string>();
  } else if constexpr (std::same_as<T, codec::StringMap>) {
    if (!document.is_object()) return wrong("an object");
    for (const auto& [key, item] : document.items()) {
      read_json(item, value[key], codec::Path(path, key), rules, problems);
    }
  } else {
    if (!document.is_object()) return wrong("an object");
    if constexpr (std::same_as<T, Json>) {
      value = document;
    } else {
      codec::read_struct(document, value, path, rules, problems);
    }
  }
}

namespace codec {

// Returns whether `choices` ("a b c") contains `value`.
bool has_choice(std::string_view choices, std::string_view value);

void check_integer(int64_t value, const Path& path, const Field& field, Problems& problems);
void check_number(double value, const Path& path, const Field& field, Problems& problems);
void check_string(const std::string& value, const std::string& fallback, const Path& path,
                  const Field& field, Problems& problems);

template <class S>
struct RangeChecker {
  const S& of;
  const Path& path;
  Problems& problems;
  const S& defaults = defaults_of<S>();

  template <class T>
  void operator()(const Field& field, T S::*member) {
    check(field, of.*member, defaults.*member, Path(path, field.name));
  }
  void refused(const RefusedField&) {}

  template <class T>
  void check(const Field& field, const T& value, const T& fallback, const Path& at) {
    if constexpr (IsOptional<T>::value) {
      if (value.has_value()) check(field, *value, defaults_of<typename T::value_type>(), at);
    } else if constexpr (IsVector<T>::value) {
      Field item = field;
      item.required = true;  // an empty text in a list is no default
      for (size_t i = 0; i < value.size(); ++i) {
        check(item, value[i], defaults_of<typename T::value_type>(), Path(at, i));
      }
    } else if constexpr (std::same_as<T, int64_t>) {
      check_integer(value, at, field, problems);
    } else if constexpr (std::same_as<T, double>) {
      check_number(value, at, field, problems);
    } else if constexpr (std::same_as<T, std::string>) {
      check_string(value, fallback, at, field, problems);
    } else if constexpr (HasFieldList<T>) {
      Schema<T>::visit(RangeChecker<T>{value, at, problems});
    }
  }
};

}  // namespace codec

// Adds a problem for every value outside the ranges, choices and lengths in the list of fields.
template <class S>
void check_ranges(const S& value, const codec::Path& path, Problems& problems) {
  Schema<S>::visit(codec::RangeChecker<S>{value, path, problems});
}

}  // namespace lockstep
