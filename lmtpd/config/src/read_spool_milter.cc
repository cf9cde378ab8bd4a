#include "read_spool_milter.h"

#include <fmt/format.h>

#include <algorithm>

#include "read_address.h"
#include "twinloft/lmtpd/proto/path.h"

namespace twinloft::lmtpd {

namespace {

void read_domains(const TomlTable& t, std::vector<std::string>& out) {
  std::vector<std::string> words;
  t.texts("domains", words);
  if (t.has("domains") && words.empty()) t.error("domains", "is an empty list");
  for (const std::string& word : words)
    if (auto domain = normal_domain(word))
      out.push_back(std::move(*domain));
    else
      t.error("domains", fmt::format("\"{}\": expected a domain such as \"example.org\"", word));
}

// An MTA never gives an empty value.
void read_values(const TomlTable& t, std::string_view key, std::vector<std::string>& out) {
  t.texts(key, out);
  if (t.has(key) && (out.empty() || std::ranges::find(out, "") != out.end()))
    t.error(key, fmt::format("expected the values that the MTA gives for {{{}}}", key));
}

void read_scope(const TomlTable& t, SpoolMilterSettings& out) {
  read_domains(t, out.domains);
  read_values(t, "rcpt_mailer", out.rcpt_mailer);
  read_values(t, "rcpt_host", out.rcpt_host);
  if (!t.has("domains") && !t.has("rcpt_mailer") && !t.has("rcpt_host"))
    t.error("domains",
            "is missing, and so are rcpt_mailer and rcpt_host: no recipient would be judged. Write the "
            "domains whose mail goes to lmtpd, or the name of the transport, such as rcpt_mailer = "
            "[\"lmtp\"]");
}

void read_unknown(const TomlTable& t, SpoolMilterSettings& out) {
  std::string unknown = "reject";
  t.text("unknown", unknown);
  out.refuses_unknown = unknown != "continue";
  if (unknown != "reject" && unknown != "continue")
    t.wrong_word("unknown", "expected \"reject\" or \"continue\"", unknown, {"reject", "continue"});
}

}  // namespace

void read_spool_milter(const TomlTable& top, Config& config) {
  const toml::table* raw = top.child("spool_milter");
  if (!raw) return;
  TomlTable t(top.problems(), *raw, "spool_milter");
  t.allow({"address", "mode", "group", "domains", "rcpt_mailer", "rcpt_host", "unknown", "timeout",
           "connections"});
  SpoolMilterSettings& out = config.spool_milter.emplace();
  bool good = read_listen_address(t, out.listen);
  for (const ListenSettings& other : config.listen)
    if (std::string why = clash(other, out.listen); good && !why.empty())
      t.error("address",
              other.is_at(out.listen) ? "is the address of a [[listen]] too, where lmtpd speaks LMTP" : why);
  read_scope(t, out);
  read_unknown(t, out);
  t.duration("timeout", out.timeout);
  t.number("connections", 1, 100'000, out.connections_max);
}

}  // namespace twinloft::lmtpd
