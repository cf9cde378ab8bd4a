// What `spool-repl salvage deliver` prints.
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
  bool problems_accepted = false;  // those of the extraction
};

// `all`: every message, not only those that somebody has to see to.
std::string delivery_text(const DeliveryReport& shown, bool all);
std::string delivery_json(const DeliveryReport& shown);

}  // namespace twinloft::repl::ctl
