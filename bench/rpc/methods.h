#pragma once

#include <cstddef>
#include <cstdint>

#include "agent/rpc/method.h"

namespace lockstep::bench {

// The methods of the benchmark's servers, at the level of messages: parameters are bytes, rows are
// kRowFloats floats.
inline const rpc::Method kPush("push", rpc::Repeats::kNever);
inline const rpc::Method kPull("pull", rpc::Repeats::kAllowed);
inline const rpc::Method kEcho("echo", rpc::Repeats::kAllowed);
inline const rpc::Method kPushRows("push_rows", rpc::Repeats::kNever);
inline const rpc::Method kPullRows("pull_rows", rpc::Repeats::kAllowed);

constexpr size_t kRowFloats = 16;
constexpr size_t kRowBytes = kRowFloats * sizeof(float);
constexpr uint64_t kTableRows = uint64_t{1} << 20;  // of each server

}  // namespace lockstep::bench
