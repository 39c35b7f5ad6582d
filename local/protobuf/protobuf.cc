#include "local/protobuf/protobuf.h"

#include <chrono>
#include <optional>
#include <string>

#include "common/base/base64.h"
#include "common/base/clock.h"
#include "local/protobuf/messages.h"

namespace lockstep::local {
namespace {

constexpr std::string_view kMagic("k8s\0", 4);
constexpr size_t kBodyBytesMax = 3u << 20;
constexpr size_t kValuesMax = 200'000;
constexpr int64_t kYear2200Seconds = 7'258'118'400;

Error broken(const std::string& what) {
  return invalid("not a protobuf body of Kubernetes: " + what);
}

// One field in wire format. Source: Protocol Buffers, "Encoding".
struct WireField {
  uint32_t number = 0;
  uint64_t value = 0;      // of a varint
  std::string_view bytes;  // of a length-delimited field
  bool is_varint = false;
};

// Reads fields in order, never beyond `bytes`.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  bool at_end() const { return rest_.empty(); }

  Result<WireField> next() {
    TRY_ASSIGN(uint64_t tag, varint());
    WireField field{.number = static_cast<uint32_t>(tag >> 3)};
    switch (tag & 7) {
      case 0: {
        TRY_ASSIGN(field.value, varint());
        field.is_varint = true;
        return field;
      }
      case 1: {
        TRY_ASSIGN(field.bytes, take(8));
        return field;
      }
      case 2: {
        TRY_ASSIGN(uint64_t size, varint());
        TRY_ASSIGN(field.bytes, take(size));
        return field;
      }
      case 5: {
        TRY_ASSIGN(field.bytes, take(4));
        return field;
      }
      default:
        return broken("found a field of wire type " + std::to_string(tag & 7));
    }
  }

 private:
  Result<uint64_t> varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return broken("the body ends inside a number");
      const uint8_t byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return broken("found a number of more than 64 bits");
  }

  Result<std::string_view> take(uint64_t size) {
    if (size > rest_.size()) return broken("the body ends inside a field");
    std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
};

// Converts messages to JSON by the tables of their fields, which also bound the nesting depth.
class MessageReader {
 public:
  Result<Json> read(const Message& message, std::string_view bytes) {
    Json object = Json::object();
    for (WireReader wire(bytes); !wire.at_end();) {
      if (++values_ > kValuesMax)
        return broken("found more than " + std::to_string(kValuesMax) + " values");
      TRY_ASSIGN(WireField found, wire.next());
      for (const MessageField& field : message.fields) {
        if (field.number == found.number) TRY(add(field, found, object));
      }
    }
    return object;
  }

 private:
  Status add(const MessageField& field, const WireField& found, Json& object) {
    const bool expects_varint = field.type == kInteger || field.type == kBoolean;
    if (found.is_varint != expects_varint) return broken(std::string(field.name));
    const std::string name(field.name);
    if (field.type == kStringMap || field.type == kBytesMap)
      return add_entry(found.bytes, field.type == kBytesMap, object[name]);
    TRY_ASSIGN(Json value, value_of(field, found));
    if (field.repeated) {
      object[name].push_back(std::move(value));
    } else if (!is_absent(field, value)) {
      object[name] = std::move(value);
    }
    return {};
  }

  // Go also writes empty strings, numbers and times: treat them as absent.
  static bool is_absent(const MessageField& field, const Json& value) {
    if (value.is_null() || (value.is_string() && value == "")) return true;
    return !field.keeps_zero && (value == Json(0) || value == Json(false));
  }

  Status add_entry(std::string_view bytes, bool encode, Json& map) {
    std::string key, value;
    for (WireReader wire(bytes); !wire.at_end();) {
      TRY_ASSIGN(WireField found, wire.next());
      if (found.is_varint) return broken("expected strings in a map entry, found a number");
      if (found.number == 1) key = found.bytes;
      if (found.number == 2) value = found.bytes;
    }
    map[key] = encode ? base64_encode(value) : value;
    return {};
  }

  Result<Json> value_of(const MessageField& field, const WireField& found) {
    switch (field.type) {
      case kInteger:
        return Json(static_cast<int64_t>(found.value));
      case kBoolean:
        return Json(found.value != 0);
      case kBytes:
        return Json(base64_encode(found.bytes));
      case kTime:
        return time(found.bytes);
      case kIntOrString:
        return int_or_string(found.bytes);
      case kRawJson:
        return raw_json(found.bytes);
      case kMessage:
        return read(*field.message, found.bytes);
      default:
        return Json(std::string(found.bytes));
    }
  }

  static Result<Json> time(std::string_view bytes) {
    int64_t seconds = 0;
    for (WireReader wire(bytes); !wire.at_end();) {
      TRY_ASSIGN(WireField found, wire.next());
      if (found.number == 1) seconds = static_cast<int64_t>(found.value);
    }
    if (seconds <= 0 || seconds > kYear2200Seconds) return Json();
    return Json(rfc3339(WallTime(std::chrono::seconds(seconds))));
  }

  static Result<Json> int_or_string(std::string_view bytes) {
    int64_t type = 0, number = 0;
    std::string text;
    for (WireReader wire(bytes); !wire.at_end();) {
      TRY_ASSIGN(WireField found, wire.next());
      if (found.number == 1) type = static_cast<int64_t>(found.value);
      if (found.number == 2) number = static_cast<int64_t>(found.value);
      if (found.number == 3) text = found.bytes;
    }
    return type == 1 ? Json(text) : Json(number);
  }

  static Result<Json> raw_json(std::string_view bytes) {
    for (WireReader wire(bytes); !wire.at_end();) {
      TRY_ASSIGN(WireField found, wire.next());
      if (found.number == 1 && !found.is_varint) return parse_json(found.bytes);
    }
    return Json();
  }

  using enum FieldType;
  size_t values_ = 0;
};

// runtime.Unknown: the object's type and its encoded bytes.
struct Envelope {
  std::string api_version;
  std::string kind;
  std::string_view raw;
};

Result<Envelope> open_envelope(std::string_view bytes) {
  Envelope envelope;
  for (WireReader wire(bytes); !wire.at_end();) {
    TRY_ASSIGN(WireField found, wire.next());
    if (found.number == 2) envelope.raw = found.bytes;
    if (found.number != 1) continue;
    for (WireReader type(found.bytes); !type.at_end();) {
      TRY_ASSIGN(WireField name, type.next());
      if (name.number == 1) envelope.api_version = name.bytes;
      if (name.number == 2) envelope.kind = name.bytes;
    }
  }
  return envelope;
}

}  // namespace

Result<Json> json_from_protobuf(std::string_view body) {
  if (!body.starts_with(kMagic)) return broken("expected it to begin with k8s\\0");
  if (body.size() > kBodyBytesMax)
    return broken("found more than " + std::to_string(kBodyBytesMax) + " bytes");
  TRY_ASSIGN(Envelope envelope, open_envelope(body.substr(kMagic.size())));
  const Message* message = find_message(envelope.api_version, envelope.kind);
  if (message == nullptr)
    return invalid("kind " + envelope.kind + " of " + envelope.api_version +
                   " can't be sent as protobuf to this server: send JSON");
  TRY_ASSIGN(Json object, MessageReader().read(*message, envelope.raw));
  object["apiVersion"] = envelope.api_version;
  object["kind"] = envelope.kind;
  // Replaces bytes that are not UTF-8 and enforces the limits of JSON documents.
  return parse_json(dump_json(object));
}

}  // namespace lockstep::local
