#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::local {

enum class FieldType {
  kString,
  kBytes,    // base64 in JSON
  kInteger,  // int32, int64
  kBoolean,
  kTime,  // metav1.Time
  kIntOrString,
  kRawJson,  // a message whose field 1 is JSON text
  kMessage,
  kStringMap,  // map<string, string>
  kBytesMap,   // map<string, bytes>
};

struct Message;

struct MessageField {
  uint32_t number;
  std::string_view name;
  FieldType type = FieldType::kString;
  bool repeated = false;
  bool keeps_zero = false;           // a pointer in Go: 0 and false are values, not absent
  const Message* message = nullptr;  // for kMessage
};

// The fields that we read of a message in k8s.io/api, by number. No message contains itself.
struct Message {
  std::vector<MessageField> fields;
};

// Returns null for a kind that we do not read.
const Message* find_message(std::string_view api_version, std::string_view kind);

}  // namespace lockstep::local
