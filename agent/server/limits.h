#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::server {

// Bounds of a view and of what it describes. Texts beyond them are refused.
constexpr size_t kTensorsMax = size_t{1} << 16;
constexpr size_t kTablesMax = 1024;
constexpr size_t kNameBytesMax = 256;
constexpr uint64_t kTensorElementsMax = uint64_t{1} << 40;
constexpr uint32_t kTableDimMax = 65536;
constexpr size_t kServersMax = 1024;
constexpr size_t kWorkersMax = 65536;
constexpr size_t kChainMax = 8;  // servers that hold one range
constexpr size_t kRangesMax = size_t{1} << 20;
constexpr uint64_t kRangeElementsMax = uint64_t{1} << 27;
constexpr size_t kArcsMax = size_t{1} << 20;
constexpr size_t kSlotsMax = 4096;
constexpr size_t kViewTextMax = size_t{64} << 20;  // bytes

// Elements of a range that has copies, so that its state is one message.
constexpr uint64_t kCopiedElementsMax = uint64_t{1} << 26;
// The state of a unit is copied to a server that joins in this many parts, or fewer.
constexpr uint32_t kStateParts = 256;
// Parts are sent together until they have this many bytes.
constexpr uint64_t kPartBytes = uint64_t{1} << 20;
// A server that is filled may lag behind by this many bytes of entries; then answers wait for it.
constexpr uint64_t kFillLagMax = uint64_t{64} << 20;

// Bounds of a call: keys, and floats of its reply.
constexpr uint64_t kKeysMax = uint64_t{1} << 22;
constexpr uint64_t kReplyFloatsMax = uint64_t{1} << 28;
// Key lists of one worker that a server remembers, and their keys together.
constexpr size_t kKeyListsMax = 64;
constexpr uint64_t kListedKeysMax = uint64_t{1} << 23;

}  // namespace lockstep::server
