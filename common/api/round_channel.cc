#include "common/api/round_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/api/servers_view.h"

namespace lockstep {
namespace {

constexpr size_t kConfigPathBytesMax = 4096;
constexpr char kWhere[] = "[round channel] ";

// A message with room for one descriptor. It points into itself.
struct Message {
  explicit Message(char* data, size_t bytes) : part{.iov_base = data, .iov_len = bytes} {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  iovec part;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
};

void attach(int fd, Message& message) {
  cmsghdr* const head = CMSG_FIRSTHDR(&message.header);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &fd, sizeof(int));
}

int attached_to(Message& message) {
  const cmsghdr* const head = CMSG_FIRSTHDR(&message.header);
  if (head == nullptr || head->cmsg_type != SCM_RIGHTS) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(head), sizeof(int));
  return fd;
}

Status send_whole(int fd, Message& message) {
  while (sendmsg(fd, &message.header, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return errno_error(std::string(kWhere) + "send", errno);
  }
  return {};
}

// A message of the agent.
struct Received {
  std::string text;
  int fd = -1;  // attached to it
};

// Waits as receive_next(). kInvalid if the text is longer than `bytes_max`.
Result<std::optional<Received>> receive(int fd, int wait_ms, size_t bytes_max) {
  pollfd ready = {fd, POLLIN, 0};
  if (poll(&ready, 1, wait_ms) <= 0) return std::optional<Received>();
  Received received{.text = std::string(bytes_max, '\0')};
  Message message(received.text.data(), bytes_max);
  const ssize_t bytes = recvmsg(fd, &message.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return std::optional<Received>();
  if (bytes <= 0) return unavailable(std::string(kWhere) + "the agent has closed it");
  received.fd = attached_to(message);
  if ((message.header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    if (received.fd >= 0) close(received.fd);
    return invalid(std::string(kWhere) + "expected at most " + std::to_string(bytes_max) +
                   " bytes and one descriptor");
  }
  received.text.resize(static_cast<size_t>(bytes));
  return std::optional<Received>(std::move(received));
}

}  // namespace

Result<std::array<int, 2>> make_round_channel() {
  std::array<int, 2> ends = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return errno_error(std::string(kWhere) + "socketpair", errno);
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return ends;
}

Status send_left(int fd, const LeftRound& left) {
  char bytes[sizeof(LeftRound)];
  std::memcpy(bytes, &left, sizeof(left));
  Message message(bytes, sizeof(bytes));
  message.header.msg_controllen = 0;
  return send_whole(fd, message);
}

std::optional<LeftRound> receive_left(int fd) {
  char bytes[sizeof(LeftRound) + 1];
  if (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) != sizeof(LeftRound)) return std::nullopt;
  LeftRound left;
  std::memcpy(&left, bytes, sizeof(left));
  return left;
}

Status send_next(int fd, const NextRound& next) {
  std::string path = next.config_path;
  if (path.empty() || path.size() > kConfigPathBytesMax) {
    return invalid(std::string(kWhere) + "expected a path of at most " +
                   std::to_string(kConfigPathBytesMax) + " bytes, found " +
                   std::to_string(path.size()));
  }
  Message message(path.data(), path.size());
  if (next.shm_fd >= 0) {
    attach(next.shm_fd, message);
  } else {
    message.header.msg_controllen = 0;
  }
  return send_whole(fd, message);
}

Result<std::optional<NextRound>> receive_next(int fd, int wait_ms) {
  TRY_ASSIGN(std::optional<Received> received, receive(fd, wait_ms, kConfigPathBytesMax));
  if (!received) return std::optional<NextRound>();
  return std::optional(NextRound{.config_path = std::move(received->text), .shm_fd = received->fd});
}

Result<bool> send_view(int fd, const std::string& text) {
  if (text.empty() || text.size() > kServersViewBytesMax) {
    return invalid(std::string(kWhere) + "expected a view of at most " +
                   std::to_string(kServersViewBytesMax) + " bytes, found " +
                   std::to_string(text.size()));
  }
  if (send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
  if (errno == EAGAIN || errno == EINTR) return false;
  return errno_error(std::string(kWhere) + "send", errno);
}

Result<std::optional<std::string>> receive_view(int fd, int wait_ms) {
  TRY_ASSIGN(std::optional<Received> received, receive(fd, wait_ms, kServersViewBytesMax));
  if (!received) return std::optional<std::string>();
  if (received->fd >= 0) close(received->fd);
  return std::optional(std::move(received->text));
}

}  // namespace lockstep
