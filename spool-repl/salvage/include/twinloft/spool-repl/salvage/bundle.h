// The mail of the losing replica as a directory that can be copied to the winner: docs/formats/salvage.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/salvage/digest.h"
#include "twinloft/spool-repl/salvage/file_ops.h"

namespace twinloft::repl::salvage {

// The split: where the writes of both replicas begin to differ. For information alone. Zero: unknown.
struct Parting {
  std::uint32_t loser = 0;  // the replica of the mail
  std::uint64_t lsn = 0;    // the last common LSN
  std::uint64_t epoch = 0;  // counter and id of the epoch of this LSN
  Uuid epoch_id;
  bool operator==(const Parting&) const = default;
};

// A file or directory that could not be taken or read.
struct ExtractProblem {
  std::string path;  // below the tree's root; may contain any bytes
  std::string what;  // a sentence for the administrator
  bool operator==(const ExtractProblem&) const = default;
};

enum class Kind : std::uint8_t {
  after,      // its content was written after the split
  uncertain,  // its content was written before the split; it may have been acknowledged afterwards
};

struct Message {
  std::uint64_t number = 0;  // its content is the file messages/NUMBER
  Kind kind = Kind::after;
  std::string user;     // address
  std::string maildir;  // path below the spool's root
  std::string folder;   // directory of a Maildir++ folder, such as ".Sent"; "": the Maildir itself (INBOX)
  bool in_new = false;  // in new/, otherwise in cur/
  std::string name;     // of the file there, with its flags
  std::uint64_t bytes = 0;
  Sha256 file;     // of the file's bytes
  Sha256 content;  // ContentDigest::content
  FileTime modified, changed, born;
  bool operator==(const Message&) const = default;
};

struct Manifest {
  Uuid volume;
  Parting parting;
  std::uint64_t window_s = 0;
  std::vector<std::string> layouts;
  std::vector<Message> messages;
  std::vector<ExtractProblem> problems;
  bool operator==(const Manifest&) const = default;
};

std::string encode_manifest(const Manifest& manifest);
// Errors: Errc::corrupt with the line, Errc::invalid for another version.
Result<Manifest> decode_manifest(std::string_view text);

inline constexpr const char* bundle_label_name = "salvage-bundle";
inline constexpr const char* bundle_messages_name = "messages";
inline constexpr const char* bundle_manifest_name = "manifest";

class BundleWriter {
 public:
  // Makes the directory, or continues in that of an interrupted extraction. Errors: Errc::conflict (the
  // directory has a complete bundle or other content), Errc::unavailable (another extraction uses it),
  // Errc::denied (it belongs to another user, or another user can write to it).
  static Result<BundleWriter> create(const std::string& path, FileOps& ops);

  struct Added {
    std::uint64_t bytes = 0;
    Sha256 file, content;
    std::optional<Error> unreadable;  // the source could not be read, and no part of it is kept
  };
  // Copies at most `bytes` of an open file to messages/NUMBER. Errors: of the bundle.
  Result<Added> add(int source, std::uint64_t number, std::uint64_t bytes);

  // Makes everything durable, and then writes the manifest, without which the directory is not a bundle.
  Status finish(const Manifest& manifest);

 private:
  BundleWriter(std::string path, FileOps& ops) : path_(std::move(path)), ops_(&ops) {}
  Status prepare();
  Result<bool> look() const;
  Status clear();
  Status make_new();

  std::string path_;
  FileOps* ops_;
  Fd parent_, dir_, label_, messages_;
};

class Bundle {
 public:
  // Errors: Errc::not_found (not a bundle), Errc::unavailable (its extraction has not ended), Errc::corrupt,
  // Errc::denied (other users can write to it).
  static Result<Bundle> open(const std::string& path);

  const Manifest& manifest() const { return manifest_; }
  // Opens the message's file, at position 0. Errors: Errc::corrupt if its length differs from the manifest.
  Result<Fd> open_message(const Message& message) const;
  // Reads the content, and compares both digests. Errors: Errc::corrupt with the file.
  Result<ContentDigest> verify(const Message& message) const;

 private:
  std::string path_;
  Fd messages_;
  Manifest manifest_;
};

}  // namespace twinloft::repl::salvage
