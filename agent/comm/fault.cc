#include "agent/comm/fault.h"

#include "common/base/utf8.h"

namespace lockstep::comm {

Error error_from(const Fault& fault, std::string_view during) {
  const Blame blame = fault.code == Code::kTimeout ? Blame::kPeerHung : Blame::kPeer;
  return {fault.code, "[comm] " + std::string(during) + fault.reason, blame};
}

bool FaultBox::raise(const Fault& fault) {
  {
    const std::lock_guard lock(mutex_);
    if (raised()) return false;
    fault_ = fault;
    fault_.reason.resize(utf8_head(fault_.reason, kFaultReasonMax).size());
    raised_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
  return true;
}

Fault FaultBox::get() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

bool FaultBox::wait_for(Duration timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return raised(); });
}

}  // namespace lockstep::comm
