#include "agent/train/exit_code.h"

#include "common/api/worker_config.h"

namespace lockstep::train {

int exit_code_of(const Error& error) {
  switch (error.blame) {
    case Blame::kUnknown:
      return kExitOwnError;
    case Blame::kConfig:
      return kExitBadConfig;
    case Blame::kData:
      return kExitDataError;
    case Blame::kStorage:
      return kExitStorageError;
    case Blame::kPeer:
      return kExitPeerLost;
    case Blame::kPeerHung:
      return kExitPeerHung;
    case Blame::kDevice:
      return kExitNoDevice;
    case Blame::kPort:
      return kExitPortTaken;
    case Blame::kDivergence:
      return kExitNotFinite;
    case Blame::kLossSpike:
      return kExitLossSpike;
    case Blame::kFenced:
      return kExitFenced;
  }
  return kExitOwnError;
}

}  // namespace lockstep::train
