// A clock for tests on the real event loop.
#pragma once

#include "twinloft/base/clock.h"

namespace twinloft::repl {

// Real time, until a test sets the time itself.
class TestClock final : public Clock {
 public:
  Instant now() const override { return by_hand ? hand : os_.now(); }
  WallTime wall() const override { return os_.wall(); }
  void take() { hand = os_.now(), by_hand = true; }
  bool by_hand = false;
  Instant hand;

 private:
  OsClock os_;
};

}  // namespace twinloft::repl
