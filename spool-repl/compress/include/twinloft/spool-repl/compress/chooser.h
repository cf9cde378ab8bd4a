// Which codec makes a link fastest, by measured speeds. Without I/O.
//
// A link with codec c carries min(threads × speed of c, line rate ÷ ratio of c) bytes of content a second.
// The codec with the most is chosen, and the cheaper of two that differ by little. The line rate is known
// only from times in which the line was full. Without a known rate nothing is compressed.
//
// Some frames try another codec, while the line is full, so that all speeds stay known.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "twinloft/base/clock.h"
#include "twinloft/spool-repl/compress/setting.h"

namespace twinloft::repl::compress {

class Chooser {
 public:
  Chooser(unsigned threads, CodecSet allowed) : threads_(threads), allowed_(allowed) {}

  // A frame took one thread `time`. packed: equal to raw if it did not become smaller.
  void note_frame(Codec codec, std::size_t raw, std::size_t packed, Duration time);
  // The line took `bytes` in `time`, and was full all that time.
  void note_line(std::uint64_t bytes, Duration time, Instant now);

  // The codec of the next frame.
  Codec next(std::size_t raw, Instant now);
  Codec best() const { return best_; }
  std::optional<double> line_rate(Instant now) const;  // bytes a second

 private:
  struct Speed {
    double bytes_per_second;  // of content, on one thread
    double ratio;             // packed to raw
    std::uint64_t frames = 0;
  };
  double carries(Codec codec, double line) const;
  void choose(Instant now);
  bool is_far_too_slow(Codec codec) const;
  Codec trial();

  unsigned threads_;
  CodecSet allowed_;
  // Until a frame has shown them: text, on a processor of 2020.
  std::array<Speed, all_codecs.size()> speeds_{
      {{1e12, 1.0}, {400e6, 0.7}, {200e6, 0.55}, {40e6, 0.55}, {4e6, 0.5}}};
  Codec best_ = Codec::none;
  std::optional<double> line_;
  Instant line_at_;
  std::uint64_t frames_ = 0, trials_ = 0, turn_ = 0;
};

}  // namespace twinloft::repl::compress
