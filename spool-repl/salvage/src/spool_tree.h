// Finds the Maildirs of a spool, and the messages of a Maildir. No link out of the spool is followed
// (beneath.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/salvage/bundle.h"
#include "twinloft/spool-repl/salvage/layout.h"

namespace twinloft::repl::salvage {

// Keeps the first problems of each user, and the number of all: a mail user can cause any number of
// problems, which must not hide those of other users.
class Problems {
 public:
  // user_depth: the number of path components below the root that differ between users.
  explicit Problems(std::size_t user_depth = 1) : user_depth_(user_depth) {}
  void add(std::string path, std::string what);
  // A directory with any content.
  void add_unreadable(std::string path, const Error& error);
  const std::optional<Error>& first_unreadable() const { return first_unreadable_; }
  std::vector<ExtractProblem> take();

 private:
  std::vector<ExtractProblem> kept_;
  struct OfUser {
    std::size_t kept = 0;
    std::uint64_t more = 0;
  };
  std::size_t user_depth_;
  std::map<std::string, OfUser, std::less<>> users_;
  std::optional<Error> first_unreadable_;
};

struct FoundMaildir {
  std::string user, path;
};
// Every Maildir below `root` that matches a layout, in order of path. Problems are: a Maildir without a
// matching layout, a symbolic link in place of a Maildir or in the path to it, and unreadable directories.
std::vector<FoundMaildir> find_maildirs(int root, const std::vector<Layout>& layouts, Problems& problems);

enum class Box : std::uint8_t { tmp, fresh, cur };
std::string_view directory_name(Box box);  // "tmp", "new", "cur"

struct MailFile {
  std::string folder;  // ".Sent"; "": the Maildir itself
  Box box = Box::fresh;
  std::string name;
};
std::string path_of(const std::string& maildir, const MailFile& file);

// The Maildir++ folders of a Maildir, in order. The first is "", the Maildir itself.
Result<std::vector<std::string>> list_folders(int root, const std::string& maildir, Problems& problems);

// Calls `take` for each entry of any type in tmp/, new/ and cur/ of a folder, except dot files, with the
// open directory of the entry. The order is that in which messages move, so that a moving message is seen.
// Errors: those of `take`. A missing directory counts as empty; an unreadable directory is a problem.
Status walk_folder(int root, const std::string& maildir, const std::string& folder,
                   const std::function<Status(int box, const MailFile&)>& take, Problems& problems);

}  // namespace twinloft::repl::salvage
