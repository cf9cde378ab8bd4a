#include <arpa/inet.h>
#include <netinet/in.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "twinloft/lmtpd/net/try_address.h"

namespace twinloft::lmtpd {

namespace {

namespace fs = std::filesystem;

// The format of /proc/net/tcp and tcp6: words in the host's byte order, in hexadecimal digits.
std::string proc_text(const void* address, std::size_t words) {
  std::string out;
  const auto* word = static_cast<const std::uint32_t*>(address);
  for (std::size_t i = 0; i < words; ++i) out += fmt::format("{:08X}", word[i]);
  return out;
}

// Inodes of the sockets that listen at this address, or at all addresses, with this port.
std::set<std::string> tcp_inodes(const ListenPlace& place) {
  constexpr std::string_view listening = "0A";
  std::uint32_t bytes[4] = {};
  bool v6 = place.host.find(':') != std::string::npos;
  if (::inet_pton(v6 ? AF_INET6 : AF_INET, place.host.substr(0, place.host.find('%')).c_str(), bytes) != 1)
    return {};
  std::size_t words = v6 ? 4 : 1;
  std::string every(words * 8, '0'), wanted = proc_text(bytes, words),
                                     port = fmt::format(":{:04X}", place.port);
  std::set<std::string> out;
  std::ifstream table(v6 ? "/proc/net/tcp6" : "/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    if (!(fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >>
          inode) ||
        state != listening)
      continue;
    if (local == wanted + port || local == every + port || (wanted == every && local.ends_with(port)))
      out.insert(inode);
  }
  return out;
}

std::set<std::string> unix_inodes(const std::string& path) {
  std::set<std::string> out;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string slot, references, protocol, flags, type, state, inode, name;
    constexpr std::string_view accepts = "00010000";
    if (fields >> slot >> references >> protocol >> flags >> type >> state >> inode >> name && name == path &&
        flags == accepts)
      out.insert(inode);
  }
  return out;
}

bool holds_one(const fs::path& process, const std::set<std::string>& inodes) {
  std::error_code error;
  for (fs::directory_iterator at(process / "fd", error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    std::string target = fs::read_symlink(at->path(), gone).string();
    constexpr std::string_view prefix = "socket:[";
    if (gone || !target.starts_with(prefix)) continue;
    if (inodes.contains(target.substr(prefix.size(), target.size() - prefix.size() - 1))) return true;
  }
  return false;
}

std::string name_of(const fs::path& process) {
  std::string name;
  std::ifstream file(process / "comm");
  std::getline(file, name);
  return name;
}

std::optional<pid_t> pid_of(const fs::path& process) {
  std::string text = process.filename().string();
  pid_t pid = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return pid;
}

}  // namespace

std::optional<SocketOwner> find_socket_owner(const ListenPlace& place) {
  std::set<std::string> inodes = place.unix_path.empty() ? tcp_inodes(place) : unix_inodes(place.unix_path);
  if (inodes.empty()) return std::nullopt;
  std::vector<SocketOwner> owners;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error))
    if (auto pid = pid_of(at->path()); pid && holds_one(at->path(), inodes))
      owners.push_back({*pid, name_of(at->path())});
  if (owners.empty()) return std::nullopt;
  auto rank = [](const SocketOwner& o) { return std::pair(!o.is_ours(), o.pid); };
  return *std::ranges::min_element(owners, {}, rank);
}

}  // namespace twinloft::lmtpd
