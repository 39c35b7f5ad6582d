// For builds without OpenSSL: the worker alone, with a compiler and headers.
#include "common/crypto/aead.h"

namespace lockstep {

Status can_encrypt() {
  return unavailable(
      "[crypto] spec.security.encryption: required, but this lockstep-worker was built without "
      "OpenSSL (preset worker): use an image whose worker has it, or encryption: none",
      Blame::kConfig);
}

Result<std::unique_ptr<Aead>> make_sealing_aead(const AeadKey&) {
  return can_encrypt().error();
}

Result<std::unique_ptr<Aead>> make_opening_aead(const AeadKey&) {
  return can_encrypt().error();
}

}  // namespace lockstep
