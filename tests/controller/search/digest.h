#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::search {

// A 64-bit digest of a sequence of values. With n states, two of them share a digest with a
// probability of about n^2 / 2^65: one in a million at six million states.
class Digester {
 public:
  Digester& add(uint64_t value) {
    // The finalizer of SplitMix64. Source: Steele et al., "Fast splittable pseudorandom number
    // generators", 2014.
    state_ += value + 0x9e3779b97f4a7c15u;
    state_ = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9u;
    state_ = (state_ ^ (state_ >> 27)) * 0x94d049bb133111ebu;
    state_ ^= state_ >> 31;
    return *this;
  }
  Digester& add(std::string_view text) {
    uint64_t hash = 14695981039346656037u;
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
    return add(hash).add(static_cast<uint64_t>(text.size()));
  }
  Digester& add_signed(int64_t value) { return add(static_cast<uint64_t>(value)); }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

// Returns the part of a UID that two objects with the same name share.
std::string_view name_in_uid(const std::string& uid);

}  // namespace lockstep::search
