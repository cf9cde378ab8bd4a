// The interface of the clients' requests that membership uses.
#pragma once

#include <cstdint>

namespace twinloft::repl::core {

class Requests {
 public:
  virtual bool any_waits() const = 0;  // a write or flush has no answer yet
  // The serial of a record without data. An open batch keeps its own serial.
  virtual std::uint64_t serial_without_data() = 0;

 protected:
  ~Requests() = default;
};

}  // namespace twinloft::repl::core
