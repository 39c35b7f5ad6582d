// For builds without OpenSSL: the worker alone, with a compiler and headers.
#include "agent/comm/aead.h"

namespace lockstep::comm {

Status can_encrypt() {
  return unavailable(
      "[comm] spec.security.encryption: required, but this lockstep-worker was built without "
      "OpenSSL (preset worker): use an image whose worker has it, or encryption: none",
      Blame::kConfig);
}

Result<std::unique_ptr<Aead>> make_sealing_aead(const AeadKey&) {
  return can_encrypt().error();
}

Result<std::unique_ptr<Aead>> make_opening_aead(const AeadKey&) {
  return can_encrypt().error();
}

}  // namespace lockstep::comm
