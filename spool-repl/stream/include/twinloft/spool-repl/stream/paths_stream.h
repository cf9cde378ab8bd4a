// A stream of bytes over several other streams, the paths of a link. docs/formats/wire.md has the chunks.
//
// At first there is one path, and bytes pass as they are. From begin() on, both directions consist of chunks,
// and further paths may be added. The bytes of a lost path are sent again over another one. So the loss of a
// path is a delay for the owner, and the loss of the last one is the end of the stream.
//
// A path is lost if it fails, or if nothing gets through while another path is alive. Both is judged in turns
// of a timer: a suspended process does not lose its paths, and a busy one finds the loss late.
//
// Memory: what was sent and not taken by the other side, at most 16 MiB, here and there. In all
// paths_stream_bytes_max().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/spool-repl/ports/loop.h"
#include "twinloft/spool-repl/stream/stream.h"

namespace twinloft::repl::chunks {
class ChunkInput;
class ChunkOutput;
struct ChunkHeader;
}  // namespace twinloft::repl::chunks

namespace twinloft::repl::stream {

// spares: the usable path with the lowest number. together: each chunk over the path that would be first to
// deliver it.
enum class PathUse : std::uint8_t { spares, together };

// The most that it holds.
std::uint64_t paths_stream_bytes_max(std::size_t paths);

class PathsStream final : public Stream {
 public:
  struct LostPath {
    unsigned number = 0;
    std::string reason;
    bool was_usable = false;  // before
    bool on_purpose = false;  // by either side
  };
  struct PathEvents {
    // Called within an event of this stream.
    std::function<void(unsigned number)> usable;  // data gets through
    // Called in a later turn. Not called at the end of the whole stream.
    std::function<void(const LostPath&)> lost;
  };
  struct PathState {
    unsigned number = 0;
    bool usable = false;                  // data has got through in both directions
    std::uint64_t sent = 0, arrived = 0;  // bytes, since the path was added
    std::optional<LineState> line = {};
  };

  PathsStream(ports::Loop& loop, std::unique_ptr<Stream> first);
  ~PathsStream() override;

  // The first path has this number. received: bytes behind the last one without a chunk, which were read
  // already. unsent: bytes before the first chunk, which were not accepted yet. patience: a path is lost
  // after such a time without a sign of it.
  void begin(unsigned number, PathUse use, Duration patience, PathEvents events, ByteSpan received,
             ByteSpan unsent);
  bool has_begun() const { return output_ != nullptr; }
  // A path with this number replaces the present one, which the other side has given up. The stream is open,
  // and has another owner until now; received, unsent: as above.
  void add(unsigned number, std::unique_ptr<Stream> path, ByteSpan received, ByteSpan unsent);
  // The path of begin() has this number, by the other side, which counts the paths.
  void set_number_of_first(unsigned number);
  bool has_path(unsigned number) const;
  void close_path(unsigned number, const std::string& reason);  // on purpose, if another one can be used
  void set_use(PathUse use) { use_ = use; }
  // The first path, before begin(). Nothing else may be called then.
  std::unique_ptr<Stream> release();
  std::vector<PathState> path_states() const;
  void for_each_path(const std::function<void(const Stream&)>& what) const;

  void start(unsigned interest, Events events) override;
  State state() const override;
  void want(unsigned interest) override;
  void set_events(Events events) override { events_ = std::move(events); }
  Result<Got> read(std::span<const iovec> into) override;
  Result<std::size_t> write(std::span<iovec> from) override;
  void end_output() override;
  void close() override;
  bool is_stuck() const override;
  bool has_unsent() const override;

 private:
  struct Path;
  void take_over(Path& path, ByteSpan received, ByteSpan unsent);
  void on_path(Path& path, unsigned ready);
  void receive(Path& path);
  void take_chunks(Path& path);
  bool take_chunk(Path& path);
  Status take(Path& path, const chunks::ChunkHeader& header);
  void tell_usable(Path& path);
  void pump();
  void send(Path& path, bool with_chunk);
  bool send_part(Path& path);
  Path* choose();
  void say(Path& path, chunks::ChunkHeader header);
  enum class Loss { failed, ended, on_purpose };  // ended: by the other side
  void lose(Path& path, const std::string& reason, Loss how = Loss::failed);
  void tell();
  void call_again();
  void on_tick();
  void judge(Path& path, Duration silence);  // silence: while another path was heard
  void tell_taken();
  std::size_t usable_paths() const;

  ports::Loop& loop_;
  unsigned next_id_ = 0;
  std::vector<std::unique_ptr<Path>> paths_, gone_;  // by number; lost, and perhaps on the call stack
  Events events_;
  PathEvents path_events_;
  PathUse use_ = PathUse::spares;
  Duration tick_{}, patience_{};
  Instant ticked_{};
  unsigned wanted_ = 0;
  std::unique_ptr<chunks::ChunkOutput> output_;  // null: bytes pass as they are
  std::unique_ptr<chunks::ChunkInput> input_;
  std::uint64_t taken_told_ = 0;
  std::vector<iovec> parts_;  // keeps its memory between writes
  bool closed_ = false, full_ = false, again_ = false;
  std::optional<Error> broken_;  // no path is left
  bool ended_ = false;           // likewise, by the other side
  bool stuck_ = false;           // the last path was, when it was lost
  ports::Loop::TimerId timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace twinloft::repl::stream
