#pragma once

namespace lockstep::train {

// SIGTERM and SIGINT as a request to stop after the current step. Until arm() they end the process
// at once, as there is nothing to save yet. State of the whole process.
class StopSignal {
 public:
  static void arm();
  // Undoes arm(), not a request. The process serves a round from its beginning again.
  static void disarm();
  static bool requested();
};

}  // namespace lockstep::train
