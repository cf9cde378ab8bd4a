// Asks doveconf about Dovecot's configuration: of 2.3 or 2.4, by a process without a shell.
#pragma once

#include <string>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

class Doveconf {
 public:
  // Errors: Errc::not_found: this machine has no doveconf.
  static Result<Doveconf> find(std::string config_path);

  // doveconf's standard output. Blocks for some milliseconds, at most 15 s. Errors: doveconf fails, with a
  // line of its output, or does not end in time.
  Result<std::string> ask(const std::vector<std::string>& words) const;
  // The value of one setting. protocol: as in a section `protocol lmtp`; empty: outside of all.
  Result<std::string> value(const std::string& name, const std::string& protocol = {}) const;
  // 2.4 has other names and formats of settings.
  Result<bool> is_2_4() const;

 private:
  Doveconf(std::string program, std::string config_path)
      : program_(std::move(program)), config_(std::move(config_path)) {}
  std::string program_, config_;
};

}  // namespace twinloft::lmtpd
