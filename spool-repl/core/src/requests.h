// What membership asks of the clients' requests.
#pragma once

#include <cstdint>

namespace twinloft::repl::core {

class Requests {
 public:
  virtual bool any_waits() const = 0;  // a write or a flush has no answer yet
  // Serial of a record that brings no data. A batch that is open keeps its own.
  virtual std::uint64_t serial_without_data() = 0;

 protected:
  ~Requests() = default;
};

}  // namespace twinloft::repl::core
