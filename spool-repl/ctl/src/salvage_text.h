// The output of `spool-repl salvage deliver`.
#pragma once

#include <string>

#include "twinloft/spool-repl/salvage/deliver.h"

namespace twinloft::repl::ctl {

struct DeliveryReport {
  std::string bundle;
  const salvage::Manifest& manifest;
  const salvage::DeliverReport& report;
  bool by_lmtp = false;
  bool dry_run = false;
  bool problems_accepted = false;  // the problems of the extraction
};

// all: every message. Otherwise only messages that need an operator.
std::string delivery_text(const DeliveryReport& shown, bool all);
std::string delivery_json(const DeliveryReport& shown);

}  // namespace twinloft::repl::ctl
