#include "cli/run/signal_wait.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace lockstep::cli {

SignalWait::~SignalWait() {
  for (const int fd : {signal_fd_, wake_fd_}) {
    if (fd >= 0) close(fd);
  }
}

Status SignalWait::block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (signal_fd_ < 0 || wake_fd_ < 0) return errno_error("[signals] signalfd or eventfd", errno);
  return {};
}

void SignalWait::wait(int milliseconds) {
  pollfd fds[2] = {{signal_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
  (void)poll(fds, 2, milliseconds);
  uint64_t wakes = 0;
  (void)!read(wake_fd_, &wakes, sizeof wakes);
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) ++count_;
}

void SignalWait::wake() {
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);  // if full, a wake-up is already pending
}

}  // namespace lockstep::cli
