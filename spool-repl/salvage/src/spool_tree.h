// Finds the Maildirs of a spool, and the messages of a Maildir. Nothing is followed out of it (beneath.h).
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

// Keeps the first ones of each user, and how many there were: a mail user can make any number of them, and
// hides nobody else's.
class Problems {
 public:
  // `user_depth`: so many parts of a path below the root tell one user's files from another's.
  explicit Problems(std::size_t user_depth = 1) : user_depth_(user_depth) {}
  void add(std::string path, std::string what);
  // A directory that may hold anything.
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
// Every Maildir below `root` that fits a layout, in order of path. A Maildir that fits none, a symbolic link
// where a Maildir or the way to it should be, and what cannot be read are problems.
std::vector<FoundMaildir> find_maildirs(int root, const std::vector<Layout>& layouts, Problems& problems);

enum class Box : std::uint8_t { tmp, fresh, cur };
std::string_view directory_name(Box box);  // "tmp", "new", "cur"

struct MailFile {
  std::string folder;  // ".Sent"; "": the Maildir itself
  Box box = Box::fresh;
  std::string name;
};
std::string path_of(const std::string& maildir, const MailFile& file);

// The Maildir++ folders of a Maildir, in order, beginning with "" for itself.
Result<std::vector<std::string>> list_folders(int root, const std::string& maildir, Problems& problems);

// Calls `take` with everything in tmp/, new/ and cur/ (in this order: what moves on is seen) of a folder that
// is no dot file, whatever it is, and the open directory that it is in. Errors: those of `take`. A box that
// is absent is empty; one that cannot be read is a problem.
Status walk_folder(int root, const std::string& maildir, const std::string& folder,
                   const std::function<Status(int box, const MailFile&)>& take, Problems& problems);

}  // namespace twinloft::repl::salvage
