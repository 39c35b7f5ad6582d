#pragma once

#include <cstddef>
#include <memory>

#include "agent/comm/link.h"
#include "agent/comm/records.h"
#include "agent/comm/socket.h"

namespace lockstep::comm {

// A TcpLink (tcp_link.h) whose stream is encrypted, in records (records.h). Encryption
// writes to the buffer that is sent, and decryption of a large payload directly to its place, so a
// payload takes one copy more than on a TcpLink: from the kernel to the buffer of records. write()
// reports bytes once their whole record is sent, so the caller offers them again until then.
// kCorrupt, once and for all, if a record is not authentic.
class SealedLink final : public Link {
 public:
  SealedLink(int peer, UniqueFd fd, const SessionSecrets& secrets);

  Result<size_t> write(std::initializer_list<Bytes> parts) override;
  Result<Bytes> peek(Want want) override;
  void consume(size_t bytes) override;
  Result<size_t> read(std::span<std::byte> into) override;
  int fd() const override { return fd_.get(); }
  std::string describe() const override;
  void expect(size_t bytes) override;

 private:
  static constexpr size_t kRecordMax = kRecordPayloadMax + kRecordOverheadBytes;
  static constexpr size_t kStagedMax = 2 * kRecordPayloadMax + 64;
  struct Buffers {
    // A short record with a frame's header, and a long one.
    std::byte sealed[2 * kRecordMax];
    std::byte received[2 * kRecordMax];
    alignas(64) std::byte staged[kStagedMax];
  };

  Status seal(std::initializer_list<Bytes> parts);
  Result<Bytes> next_record();
  Result<bool> stage_record();
  Error named(const Error& error) const;
  Status take(Bytes record, std::byte* into);

  UniqueFd fd_;
  RecordSealer sealer_;
  RecordOpener opener_;
  std::unique_ptr<Buffers> buffers_;
  // Sealed and not sent: [begin, end) of Buffers::sealed, and the bytes that it is of.
  size_t sealed_begin_ = 0;
  size_t sealed_end_ = 0;
  size_t sealed_payload_ = 0;
  size_t received_begin_ = 0;  // received and not opened
  size_t received_end_ = 0;
  size_t staged_begin_ = 0;  // opened and not consumed; in place modulo 64, like the stream
  size_t staged_end_ = 0;
  int low_water_ = 1;
};

}  // namespace lockstep::comm
