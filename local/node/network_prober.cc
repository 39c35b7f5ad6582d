#include "local/node/network_prober.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace lockstep::local {
namespace {

constexpr size_t kAnswerBytesMax = 256;  // only the status line matters
constexpr size_t kTasksMax = 512;        // others wait their turn

std::string place_of(const NetworkProbe& probe) {
  return probe.address + ":" + std::to_string(probe.port);
}

// Returns the code of "HTTP/1.1 200 OK"; 0: incomplete; -1: something else.
int status_code(const std::string& answer) {
  if (answer.size() < 12) return 0;
  int code = 0;
  auto [end, error] = std::from_chars(answer.data() + 9, answer.data() + 12, code);
  bool is_http = answer.starts_with("HTTP/1.") && answer[8] == ' ';
  return is_http && error == std::errc() && end == answer.data() + 12 ? code : -1;
}

}  // namespace

std::string http_get_text(const std::string& path, const std::string& host,
                          const std::vector<std::pair<std::string, std::string>>& headers) {
  std::string text = "GET " + path + " HTTP/1.1\r\n";
  bool has_host = std::any_of(headers.begin(), headers.end(),
                              [](const auto& header) { return header.first == "Host"; });
  if (!has_host) text += "Host: " + host + "\r\n";
  text += "User-Agent: kube-probe/1.31\r\nAccept: */*\r\nConnection: close\r\n";
  for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
  return text + "\r\n";
}

NetworkProber::NetworkProber(const Clock& clock)
    : clock_(clock), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  thread_ = std::thread([this] { loop(); });
}

NetworkProber::~NetworkProber() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
  thread_.join();
  for (Task& task : tasks_) {
    if (task.fd >= 0) close(task.fd);
  }
  close(wake_fd_);
}

void NetworkProber::probe(NetworkProbe probe, OnDone on_done) {
  {
    std::lock_guard lock(mutex_);
    TimePoint deadline = clock_.now() + probe.timeout;
    new_.push_back(
        {.probe = std::move(probe), .on_done = std::move(on_done), .deadline = deadline});
  }
  uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
}

void NetworkProber::finish(Task& task, bool ok, const std::string& text) {
  if (task.fd >= 0) close(task.fd);
  task.fd = -1;
  task.on_done(ok, text);
}

void NetworkProber::open(Task& task) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(task.probe.port);
  task.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (task.fd < 0 || inet_pton(AF_INET, task.probe.address.c_str(), &name.sin_addr) != 1) return;
  if (connect(task.fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0) task.connected = true;
}

bool NetworkProber::advance(Task& task, short events) {
  auto fails = [&](const std::string& why) {
    finish(task, false, why);
    return true;
  };
  if (task.fd < 0) return fails("dial tcp " + place_of(task.probe) + ": not an address");
  if (clock_.now() >= task.deadline)
    return fails("dial tcp " + place_of(task.probe) + ": i/o timeout");
  if (events == 0) return false;
  if (!task.connected) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(task.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0)
      return fails("dial tcp " + place_of(task.probe) + ": connect: " + std::strerror(error));
    task.connected = true;
  }
  const std::string& request = task.probe.request;
  if (task.sent < request.size()) {
    ssize_t sent = send(task.fd, request.data() + task.sent, request.size() - task.sent,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) return fails("Get: " + std::string(std::strerror(errno)));
    task.sent += sent > 0 ? static_cast<size_t>(sent) : 0;
    if (task.sent < request.size()) return false;
  }
  if (request.empty()) {
    finish(task, true, "");
    return true;
  }
  char buffer[kAnswerBytesMax];
  ssize_t bytes = recv(task.fd, buffer, sizeof buffer, MSG_DONTWAIT);
  if (bytes < 0 && errno == EAGAIN) return false;
  if (bytes > 0) task.answer.append(buffer, static_cast<size_t>(bytes));
  int code = status_code(task.answer);
  if (bytes > 0 && code == 0) return false;
  if (code <= 0) return fails("Get: the answer is not HTTP");
  bool ok = code >= 200 && code < 400;
  finish(task, ok, ok ? "" : "HTTP probe failed with statuscode: " + std::to_string(code));
  return true;
}

void NetworkProber::loop() {
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      while (!new_.empty() && tasks_.size() < kTasksMax) {
        tasks_.push_back(std::move(new_.front()));
        new_.pop_front();
        open(tasks_.back());
      }
    }
    TimePoint next = TimePoint::max();
    std::vector<pollfd> fds{{wake_fd_, POLLIN, 0}};
    for (const Task& task : tasks_) {
      bool writes =
          !task.connected || task.probe.request.empty() || task.sent < task.probe.request.size();
      fds.push_back({task.fd, static_cast<short>(writes ? POLLOUT : POLLIN), 0});
      next = std::min(next, task.fd < 0 ? clock_.now() : task.deadline);
    }
    int64_t wait = -1;
    if (next != TimePoint::max())
      wait =
          std::clamp<int64_t>((next - clock_.now()) / std::chrono::milliseconds(1) + 1, 0, 60000);
    (void)poll(fds.data(), fds.size(), static_cast<int>(wait));
    uint64_t count = 0;
    (void)!read(wake_fd_, &count, sizeof count);
    std::vector<Task> left;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (!advance(tasks_[i], fds[i + 1].revents)) left.push_back(std::move(tasks_[i]));
    }
    tasks_ = std::move(left);
  }
}

}  // namespace lockstep::local
