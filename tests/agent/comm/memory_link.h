#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "agent/comm/frame.h"
#include "agent/comm/link.h"

namespace lockstep::test {

// A link whose other end is the test. The test's bytes exist from the beginning, and arrive as far
// as arrive() lets them. Bytes written to the link are kept.
class MemoryLink final : public comm::Link {
 public:
  MemoryLink(int peer, comm::Bytes says)
      : comm::Link(peer),
        memory_(std::make_unique<Line[]>(says.size() / comm::kFrameAlign + 1)),
        bytes_(says.size()) {
    if (!says.empty()) std::memcpy(memory_.get(), says.data(), says.size());
  }

  void arrive(size_t bytes) { arrived_ = std::min(bytes_, arrived_ + bytes); }
  bool all_arrived() const { return arrived_ == bytes_; }
  const std::vector<std::byte>& heard() const { return heard_; }

  Result<size_t> write(std::initializer_list<comm::Bytes> parts) override {
    size_t taken = 0;
    for (const comm::Bytes part : parts) {
      heard_.insert(heard_.end(), part.begin(), part.end());
      taken += part.size();
    }
    return taken;
  }
  Result<comm::Bytes> peek(Want want) override {
    if (arrived_ - consumed_ < want.at_least) return comm::Bytes{};
    const auto* begin = reinterpret_cast<const std::byte*>(memory_.get()) + consumed_;
    return comm::Bytes(begin, std::min(arrived_ - consumed_, want.at_most));
  }
  void consume(size_t bytes) override {
    CHECK(bytes <= arrived_ - consumed_);
    consumed_ += bytes;
  }
  Result<size_t> read(std::span<std::byte> into) override {
    TRY_ASSIGN(const comm::Bytes piece, peek({.at_least = 1, .at_most = into.size()}));
    if (!piece.empty()) std::memcpy(into.data(), piece.data(), piece.size());
    consume(piece.size());
    return piece.size();
  }
  std::string describe() const override { return "memory"; }

 private:
  struct alignas(comm::kFrameAlign) Line {
    std::byte bytes[comm::kFrameAlign];
  };
  std::unique_ptr<Line[]> memory_;
  size_t bytes_;
  size_t arrived_ = 0;
  size_t consumed_ = 0;
  std::vector<std::byte> heard_;
};

}  // namespace lockstep::test
