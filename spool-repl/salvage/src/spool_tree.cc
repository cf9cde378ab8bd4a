#include "spool_tree.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>

#include "beneath.h"
#include "twinloft/mail/maildir_layout.h"

namespace twinloft::repl::salvage {

namespace {

constexpr std::size_t problems_of_user_max = 1000;

bool has_directory(const std::vector<Entry>& entries, std::string_view name) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const Entry& e) { return e.name == name && e.type == DT_DIR; });
}

bool is_maildir(const std::vector<Entry>& entries) {
  return has_directory(entries, "cur") && has_directory(entries, "new");
}

std::string below(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "/" + name;
}

class Search {
 public:
  Search(int root, const std::vector<Layout>& layouts, Problems& problems)
      : root_(root), layouts_(layouts), problems_(problems) {}

  std::vector<FoundMaildir> run() {
    waiting_.push_back("");
    while (!waiting_.empty()) {
      std::string path = std::move(waiting_.back());
      waiting_.pop_back();
      look_into(path);
    }
    std::sort(found_.begin(), found_.end(),
              [](const FoundMaildir& a, const FoundMaildir& b) { return a.path < b.path; });
    return std::move(found_);
  }

 private:
  void look_into(const std::string& path) {
    auto dir = open_directory(root_, path.empty() ? "." : path);
    auto entries = dir ? list_directory(dir->get()) : std::unexpected(dir.error());
    if (!entries) return problems_.add_unreadable(path, entries.error());
    bool maildir = is_maildir(*entries);
    if (maildir)
      take(path);
    else
      note_half_maildir(path, *entries);
    for (const Entry& e : *entries) {
      if (e.type == DT_LNK) note_link(below(path, e.name));
      // A Maildir++ folder belongs to its Maildir.
      if (e.type == DT_DIR && !(maildir && (mail::is_maildir_box(e.name) || mail::is_folder_name(e.name))))
        waiting_.push_back(below(path, e.name));
    }
  }

  void take(const std::string& path) {
    for (const Layout& layout : layouts_)
      if (auto user = layout.user_of(path)) return found_.push_back({std::move(*user), path});
    problems_.add(path, "a Maildir without a matching layout: its mail is not taken; add its layout");
  }

  void note_half_maildir(const std::string& path, const std::vector<Entry>& entries) {
    bool box = std::any_of(entries.begin(), entries.end(),
                           [](const Entry& e) { return e.name == "cur" || e.name == "new"; });
    if (box && std::any_of(layouts_.begin(), layouts_.end(),
                           [&](const Layout& l) { return l.user_of(path).has_value(); }))
      problems_.add(path,
                    "new/ or cur/ is missing, or is not a directory: not a Maildir, its mail is not taken");
  }

  void note_link(const std::string& path) {
    if (std::any_of(layouts_.begin(), layouts_.end(),
                    [&](const Layout& l) { return l.may_lead_to_maildir(path); }))
      problems_.add(path, "a symbolic link in place of a Maildir, or in the path to it: not followed");
  }

  int root_;
  const std::vector<Layout>& layouts_;
  Problems& problems_;
  std::vector<std::string> waiting_;
  std::vector<FoundMaildir> found_;
};

}  // namespace

void Problems::add(std::string path, std::string what) {
  std::size_t end = 0;
  for (std::size_t part = 0; part < user_depth_ && end != path.npos; ++part)
    end = path.find('/', part == 0 ? 0 : end + 1);
  OfUser& user = users_[path.substr(0, end)];
  if (user.kept == problems_of_user_max) {
    ++user.more;
    return;
  }
  ++user.kept;
  kept_.push_back({std::move(path), std::move(what)});
}

void Problems::add_unreadable(std::string path, const Error& error) {
  if (!first_unreadable_)
    first_unreadable_ = Error{
        error.code, fmt::format("{} cannot be searched: {}", printable(path), error.message), error.sys};
  add(std::move(path), "cannot be searched: " + error.message);
}

std::vector<ExtractProblem> Problems::take() {
  for (const auto& [path, user] : std::exchange(users_, {}))
    if (user.more > 0) kept_.push_back({path, fmt::format("and {} more", user.more)});
  return std::exchange(kept_, {});
}

std::vector<FoundMaildir> find_maildirs(int root, const std::vector<Layout>& layouts, Problems& problems) {
  return Search(root, layouts, problems).run();
}

std::string_view directory_name(Box box) {
  return box == Box::tmp ? "tmp" : box == Box::fresh ? "new" : "cur";
}

std::string path_of(const std::string& maildir, const MailFile& file) {
  std::string folder = file.folder.empty() ? maildir : maildir + "/" + file.folder;
  return fmt::format("{}/{}/{}", folder, directory_name(file.box), file.name);
}

Result<std::vector<std::string>> list_folders(int root, const std::string& maildir, Problems& problems) {
  TL_TRY_ASSIGN(Fd dir, open_directory(root, maildir));
  TL_TRY_ASSIGN(std::vector<Entry> entries, list_directory(dir.get()));
  std::vector<std::string> out{""};
  for (const Entry& e : entries) {
    if (!mail::is_folder_name(e.name)) continue;
    if (e.type == DT_LNK)
      problems.add(below(maildir, e.name), "a symbolic link in place of a folder: not followed");
    if (e.type != DT_DIR) continue;
    auto inside = open_directory(dir.get(), e.name);
    auto boxes = inside ? list_directory(inside->get()) : std::unexpected(inside.error());
    if (!boxes) problems.add_unreadable(below(maildir, e.name), boxes.error());
    if (boxes && (has_directory(*boxes, "cur") || has_directory(*boxes, "new"))) out.push_back(e.name);
  }
  return out;
}

Status walk_folder(int root, const std::string& maildir, const std::string& folder,
                   const std::function<Status(int box, const MailFile&)>& take, Problems& problems) {
  for (Box box : {Box::tmp, Box::fresh, Box::cur}) {
    std::string path = fmt::format("{}/{}", below(maildir, folder), directory_name(box));
    auto dir = open_directory(root, path);
    if (!dir && dir.error().sys == ENOENT) continue;
    auto entries = dir ? list_directory(dir->get()) : std::unexpected(dir.error());
    if (!entries) {
      problems.add_unreadable(path, entries.error());
      continue;
    }
    for (const Entry& e : *entries)
      if (!e.name.starts_with('.')) TL_TRY(take(dir->get(), {folder, box, e.name}));
  }
  return {};
}

}  // namespace twinloft::repl::salvage
