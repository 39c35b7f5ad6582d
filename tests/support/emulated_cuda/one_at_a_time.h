#pragma once

#include <mutex>

// NVIDIA's libraries allow several threads, each with its own handle. The fakes keep their state in
// one place, so they serialize calls with this mutex.
namespace lockstep::test {

inline std::mutex fake_library_mutex;

template <auto kFunction>
struct OneAtATime;

template <class Out, class... In, Out (*kFunction)(In...)>
struct OneAtATime<kFunction> {
  static Out call(In... in) {
    const std::lock_guard lock(fake_library_mutex);
    return kFunction(in...);
  }
};

template <auto kFunction>
inline constexpr auto* one_at_a_time = &OneAtATime<kFunction>::call;

}  // namespace lockstep::test
