// The input is a configuration file. It is accepted, or refused with the name of the file.
#include <cstdint>
#include <string_view>

#include "twinloft/base/check.h"
#include "twinloft/lmtpd/config/config.h"

using namespace twinloft::lmtpd;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto config = parse_config("f.toml", {reinterpret_cast<const char*>(data), size});
  if (!config) {
    TL_CHECK(config.error().message.starts_with("f.toml:"));
    return 0;
  }
  TL_CHECK(!config->listen.empty() && config->limits.message_bytes_max >= 1024 &&
           config->limits.recipients_max >= 1);
  for (const ListenSettings& l : config->listen)
    TL_CHECK(l.unix_path.empty() != l.host.empty() && l.port != 25);
  for (const AgentSpec& agent : config->agents) TL_CHECK(check_agent_spec(agent, nullptr).has_value());
  return 0;
}
