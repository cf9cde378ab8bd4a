// A spool of Maildirs in a temporary directory, with a bundle beside it. A message counts as written after
// the split if its content says so.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "twinloft/spool-repl/salvage/extract.h"

namespace twinloft::repl::salvage {

std::string read(const std::string& path);
void write(const std::string& path, const std::string& text);  // also creates missing directories

class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline constexpr const char* volume_text = "0b7e0f3a-52a1-4c8e-9d5f-64a4d9f0b1c2";
inline const std::string ann = "example.org/ann/Maildir";
inline const std::string bob = "example.org/bob/Maildir";

// A message as lmtpd stores it. Its trace fields contain the number of the delivery.
std::string message(const std::string& subject, const std::string& user = "ann@example.org",
                    const std::string& delivery = "1");
// The same message, which written_after() treats as written after the split.
std::string late(const std::string& subject, const std::string& user = "ann@example.org",
                 const std::string& delivery = "1");
Result<bool> written_after(int fd);

// A directory with a spool's marker and the Maildirs of ann and bob.
class Spool {
 public:
  Spool();
  const std::string& root() const { return directory_.path(); }
  std::string operator/(const std::string& name) const { return directory_ / name; }
  Fd open() const;
  void make_maildir(const std::string& path) const;  // also for a Maildir++ folder
  void put(const std::string& path, const std::string& content) const { write(directory_ / path, content); }
  // The sorted paths of all files in new/ and cur/ below the root that contain `text`.
  std::vector<std::string> find(const std::string& text) const;

 private:
  TemporaryDirectory directory_;
};

ExtractOptions options_for(const std::string& bundle);
// Extracts the messages of late(). A failure fails the test.
ExtractReport extract_from(const Spool& loser, const std::string& bundle);
// Each problem as "path: what".
std::string text_of(const std::vector<ExtractProblem>& problems);
Bundle open_bundle(const std::string& path);

}  // namespace twinloft::repl::salvage
